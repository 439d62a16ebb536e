"""The options of a run as keywords, for Python and for the command line."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from grpo_practice.app.arms import ArmsJob, ArmsRequest, prepare_arms
from grpo_practice.app.effect_run import EffectJob, EffectRequest, prepare_effect
from grpo_practice.app.evaluation_run import EvalJob, prepare_eval
from grpo_practice.app.practice_run import PracticeJob, prepare_practice
from grpo_practice.app.request import ConfigInput, EvalRequest, PracticeRequest, RunRequest
from grpo_practice.app.session import Session
from grpo_practice.errors import ConfigError
from grpo_practice.events import Emit, silent, tee
from grpo_practice.llm.budget import Caps
from grpo_practice.redact import redactor
from grpo_practice.store import Store
from grpo_practice.telemetry.tracer import Tracing
from grpo_practice.types import Library

if TYPE_CHECKING:
    from grpo_practice.app.train_job import TrainJob
    from grpo_practice.app.tuning import TuneJob

LEAST: Mapping[str, int] = {"limit": 1, "restart_step": 0, "max_tokens": 0, "max_requests": 0}
"""Least value of the options that are counts."""


def check_least(name: str, value: int | None, least: int) -> None:
    """Raise ConfigError where the value of an option is given, and less than `least`."""
    if value is not None and value < least:
        raise ConfigError(f"{name} {value}: should be {least} or more")


class RunOptions(TypedDict, total=False):
    """Options that practice and evaluation have in common; each may be left out."""

    dataset: str
    """Dataset or file in place of the configured one."""
    overrides: Mapping[str, Any]
    """Typed values by dotted key, laid over the config."""
    sets: Sequence[str]
    """Overrides as texts, `KEY=VALUE`, values read as YAML; `overrides` win over them."""
    env: Mapping[str, str] | None
    """Variables that the config may name; None: the process's, and those of `.env`. Those that
    `environment(trust=…)` returns trust files or hosts, too."""
    verify: str | Callable[..., Any] | None
    """Verify function in place of the configured one: its name, or a Python function."""
    max_cost: float | None
    """US dollars before which the run pauses."""
    max_tokens: int | None
    """Tokens, in and out, before which the run pauses."""
    max_requests: int | None
    """Requests before which the run pauses."""
    restart_step: int | None
    """First step to play afresh; None continues."""
    again: bool
    """Whether to repeat the restart at `restart_step`, even if it is under way or finished."""
    verbose: bool
    """Whether notices also say which keys of the config have no effect."""
    trace_content: bool
    """Whether traces show questions, prompts, answers and errors (default: they do)."""
    trace_sample: float
    """Share of the groups that are traced, above 0 and up to 1 (default: 1)."""
    on_event: Emit
    """Callback for progress. An exception in it is logged, and the run goes on."""


class EvalOptions(RunOptions, total=False):
    """Options of an evaluation."""

    agent: str | Path | Callable[..., Any] | None
    """Agent's file, as `export` writes it, or a Python function that plays."""
    model: str | None
    """Model in place of the configured one."""
    library: str | Library | None
    """Library that is put into the agent: `RUN[:STEP]` or itself."""
    limit: int | None
    """Most questions to ask."""
    rejudge: bool
    """Whether to score stored rollouts with `verify`, in place of playing."""
    run: str | None
    """Run to be configured as, or with `rejudge` the one whose rollouts are scored again; None: the
    config's, else the latest."""


class PracticeOptions(RunOptions, total=False):
    """Options of a practice run."""

    agent: Callable[..., Any] | None
    """Python function that plays."""
    start: str | Path | Library | None
    """Library to start from: `RUN[:STEP]`, a file of experiences, or itself; None: the run's own,
    else an empty one."""


class TrainOptions(RunOptions, total=False):
    """Options of a training run; nothing of it is traced."""


class EffectOptions(RunOptions, total=False):
    """Options of a measurement of experiences; `dataset` is the one to ask."""

    agent: Callable[..., Any] | None
    """Python function that plays, where one has practised."""


def tracing_of(options: RunOptions) -> Tracing:
    """Return what the options say of traces.

    Raises:
        ConfigError: The share of groups is none.
    """
    share = options.get("trace_sample", 1.0)
    if not 0 < share <= 1:
        raise ConfigError(f"trace_sample {share:g}: should be above 0, and 1 at most")
    return Tracing(options.get("trace_content", True), share)


def eval_job(
    store: Store,
    config: ConfigInput | None,
    options: EvalOptions,
    command: str | None,
) -> EvalJob:
    """Return the evaluation that these options mean; see `prepare_eval`.

    `command` is put on record; None is the call from Python.
    """
    session, fields = _taken_apart(
        store, options, "data.dataset", command or _call(store, "evaluate", config, options)
    )
    return prepare_eval(session, EvalRequest(config=config, **fields))


def arms_job(
    arms: tuple[Sequence[str], str],
    store: Store,
    config: ConfigInput | None,
    options: EvalOptions,
    command: str | None,
) -> ArmsJob:
    """Return the evaluations that these options mean; see `eval_job`.

    `arms` are their names, and the step whose library they are about.
    """
    session, fields = _taken_apart(
        store, options, "data.dataset", command or _call(store, "evaluate_arms", config, options)
    )
    if fields.get("again") and fields.get("restart_step") is None:
        fields["restart_step"] = 0
    evaluation = EvalRequest(config=config, **fields)
    return prepare_arms(session, ArmsRequest(names=arms[0], evaluation=evaluation, step=arms[1]))


def effect_job(
    asked: tuple[str, int | None],
    store: Store,
    library: str | None,
    options: EffectOptions,
    command: str | None,
) -> EffectJob:
    """Return the measurement that these options mean; see `eval_job`.

    `asked` is the step of the library, and the rollouts of a question.
    """
    step, k = asked
    call = command or _call(store, "effects", library, options)
    session, fields = _taken_apart(store, options, "dataset", call)
    dataset = fields["values"].pop("dataset", None)
    if fields.get("again") and fields.get("restart_step") is None:
        fields["restart_step"] = 0
    request = EffectRequest(library=library, step=step, dataset=dataset, k=k, **fields)
    return prepare_effect(session, request)


def practice_job(
    store: Store,
    config: ConfigInput | None,
    options: PracticeOptions,
    command: str | None,
) -> PracticeJob:
    """Return the practice run that these options mean; see `eval_job`."""
    dataset = "data.practice_dataset_name"
    session, fields = _taken_apart(
        store, options, dataset, command or _call(store, "practise", config, options)
    )
    return prepare_practice(session, PracticeRequest(config=config, **fields))


def train_job(
    store: Store,
    config: ConfigInput | None,
    options: TrainOptions,
    command: str | None,
) -> "TrainJob":
    """Return the training run that these options mean; see `eval_job`."""
    from grpo_practice.app.train_job import prepare_train

    dataset = "data.practice_dataset_name"
    session, fields = _taken_apart(
        store, options, dataset, command or _call(store, "train", config, options)
    )
    return prepare_train(session, RunRequest(config=config, **fields))


def tune_job(
    prepare: "Callable[[Session, RunRequest], TuneJob]",
    store: Store,
    config: ConfigInput | None,
    options: TrainOptions,
    command: str | None,
) -> "TuneJob":
    """Return the search that these options mean, as it is prepared; see `eval_job`."""
    dataset = "data.practice_dataset_name"
    session, fields = _taken_apart(
        store, options, dataset, command or _call(store, "tune", config, options)
    )
    return prepare(session, RunRequest(config=config, **fields))


def _call(store: Store, method: str, config: ConfigInput | None, options: Mapping[str, Any]) -> str:
    """Return a call from Python as it can be made again; what is not short goes by its name."""
    words = [] if config is None else [_argument("config", config)]
    words += [
        f"{name}={_argument(name, value)}"
        for name, value in options.items()
        if value not in (None, False, [], {}) and name not in ("on_event", "again")
    ]
    return f"Workspace({str(store.path)!r}).{method}({', '.join(words)})"


def _argument(name: str, value: object) -> str:
    match value:
        case bool() | int() | float():
            return repr(value)
        case str() | Path() if "\n" not in str(value):
            return repr(redactor.text(str(value)))
        case _:
            own = getattr(value, "__name__", "")
            return own if callable(value) and own.isidentifier() else name


def _taken_apart(
    store: Store, options: RunOptions, dataset: str, command: str
) -> tuple[Session, dict[str, Any]]:
    """Return the session of a call, and the fields of its request.

    `dataset` is the key of the dataset in the config, and `command` is put on record.

    Raises:
        ConfigError: A cap is no number, or a count is too small.
    """
    fields = dict[str, Any](options)
    tracing_of(options)
    for name in ("trace_content", "trace_sample"):
        fields.pop(name, None)
    session = Session(
        store,
        # `tee` also where there is one sink: an exception in a callback must not end a paid run.
        tee(fields.pop("on_event", silent)),
        command,
        fields.pop("verbose", False),
    )
    values = {**fields.pop("overrides", {})}
    if (name := fields.pop("dataset", None)) is not None:
        values[dataset] = name
    for name, least in LEAST.items():
        check_least(name, fields.get(name), least)
    if isinstance(agent := fields.get("agent"), str):
        fields["agent"] = Path(agent)
    cost = fields.pop("max_cost", None)
    if cost is not None and not (math.isfinite(cost) and cost >= 0):
        raise ConfigError(f"--max-cost {cost}: should be dollars, for instance 2.50")
    micro = None if cost is None else round(cost * 1e6)
    caps = Caps(fields.pop("max_requests", None), fields.pop("max_tokens", None), micro)
    return session, fields | {"values": values, "caps": caps}
