"""Request classes of the commands that play rollouts."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from grpo_practice.core.text import is_data_file
from grpo_practice.run.requests.base import (
    PilotedRequest,
    RunRequest,
    keyword,
    keywords,
    number,
    option,
)

if TYPE_CHECKING:
    from grpo_practice.config.input import ConfigInput
    from grpo_practice.core.types import Library

EXP_ID = "Name of the experiment."
CONFIG = "Config file, or its name in ./configs."
IN_FLIGHT = "Maximum number of rollouts in flight."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation(PilotedRequest):
    """Fields of evaluations; agent, model, verify and library are part of the evaluation's name."""

    agent: "str | Path | Callable[..., Any] | None" = option(
        None,
        "Agent YAML written by export-agent.",
        python="Agent file written by `export`, or a Python function that plays.",
        type=Path,
        metavar="FILE",
    )
    model: str | None = option(None, "Model that answers.")
    base_url: str | None = option(
        None, "URL of the model's endpoint.", key="agent.model.model_provider.base_url"
    )
    dataset: str | None = option(
        None, "Dataset to evaluate on, or a file.", key="data.dataset", stored="datasets"
    )
    verify: str | Callable[..., Any] | None = option(
        None,
        "How answers are scored: math, exact, file.py:func, …",
        python="How answers are scored: `math`, `exact`, `file.py:func`, …, or a Python function.",
    )
    pass_k: int | None = number("Rollouts per question.", "--pass-k", "-k", key="pass_k")
    concurrency: int | None = number(IN_FLIGHT, key="concurrency")
    exp_id: str | None = option(None, EXP_ID, key="exp_id")
    library: "str | Library | None" = keyword(
        None, "Library to give to the agent: `RUN[:STEP]`, or a `Library`."
    )
    limit: int | None = number("Play only this many questions.")
    rejudge: bool = option(
        False,
        "Score the rollouts of --run again; play nothing.",
        "--rejudge",
        python="Score the rollouts of `run` again with `verify`; play nothing.",
        type=bool,
    )
    run: str | None = option(
        None,
        "Evaluate with this run's config; with --rejudge or --show: use its rollouts.",
        python="Evaluate with this run's config; with `rejudge`, score its rollouts.",
        metavar="RUN",
        stored="runs",
    )

    @override
    def __post_init__(self) -> None:
        PilotedRequest.__post_init__(self)
        # A frozen dataclass can only be completed this way.
        if isinstance(self.agent, str):
            object.__setattr__(self, "agent", Path(self.agent))


@dataclass(frozen=True, slots=True)
class EvalRequest(_Evaluation):
    """Request for an evaluation."""

    method = "evaluate"
    config: "ConfigInput | None" = option(None, CONFIG, "--config", "-c", metavar="FILE")


@dataclass(frozen=True, slots=True)
class ArmsRequest(_Evaluation):
    """Request for evaluations that are played together and compared, but stored separately."""

    method = "evaluate_arms"
    arms: Sequence[str] = keyword(
        (), "Names of arms, libraries (`L12`), and library or agent files."
    )
    config: "ConfigInput | None" = option(None, CONFIG, "--config", "-c", metavar="FILE")
    _: KW_ONLY
    step: str = keyword("last", "Step whose library to use: last, best or a number.")

    @override
    def __post_init__(self) -> None:
        _Evaluation.__post_init__(self)
        restart_all(self)

    @property
    def evaluation(self) -> EvalRequest:
        """Evaluation request that all arms share, apart from agent and library."""
        return EvalRequest(**keywords(self, EvalRequest))


@dataclass(frozen=True, slots=True)
class PracticeRequest(PilotedRequest):
    """Request for a practice run."""

    method = "practise"
    config: "ConfigInput | None" = option(None, CONFIG, "--config", "-c", metavar="FILE")
    _: KW_ONLY
    agent: Callable[..., Any] | None = keyword(None, "Python function that plays.")
    exp_id: str | None = option(None, EXP_ID, key="exp_id")
    dataset: str | None = option(
        None, "Dataset to practise on.", key="data.practice_dataset_name", stored="datasets"
    )
    attempts: str | None = option(
        None,
        "Learn from attempts that already exist; play none.",
        python="Learn from the attempts in a JSON Lines file, or of a run; play none.",
        key="practice.attempts",
        metavar="FILE|RUN",
        stored="runs",
    )
    epochs: int | None = number("Passes over the data.", key="practice.epochs")
    batch_size: int | None = number("Samples per step.", key="practice.batch_size")
    grpo_n: int | None = number("Rollouts per sample.", least=2, key="practice.grpo_n")
    concurrency: int | None = number(IN_FLIGHT, key="practice.rollout_concurrency")
    truncate: int | None = number(
        "Use only this many samples.", key="practice.rollout_data_truncate"
    )
    start: "str | Path | Library | None" = option(
        None,
        "Start from a run's library, or from experiences in a YAML or JSON file.",
        "--from",
        metavar="RUN[:STEP]|FILE",
        stored="runs",
        blank=True,
    )

    @override
    def __post_init__(self) -> None:
        PilotedRequest.__post_init__(self)
        # A typed path belongs to this folder, but paths in a config belong to the config's folder.
        if is_data_file(self.attempts):
            object.__setattr__(self, "attempts", str(Path(str(self.attempts)).absolute()))


def restart_all(request: RunRequest) -> None:
    """Make `again` replay everything, because these requests cover several runs and no step."""
    if request.again and request.restart_step is None:
        object.__setattr__(request, "restart_step", 0)
