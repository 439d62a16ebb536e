"""Request to measure experiences: keyword arguments in Python, options on the command line."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from typing_extensions import override

from grpo_practice.run.requests.base import TracedRequest, keyword, option
from grpo_practice.run.requests.runs import restart_all


@dataclass(frozen=True, slots=True)
class EffectRequest(TracedRequest):
    """Request to measure the effect of each experience of a library."""

    method = "effects"
    library: str | None = keyword(
        None, "`RUN[:STEP]` or `L12`; None: the latest practice run's library."
    )
    _: KW_ONLY
    step: str = option("last", "Step whose library to measure.", metavar="last|best|N")
    dataset: str | None = option(
        None,
        "Dataset to measure on, not used for practice or evaluation"
        " (default: practice.select_dataset).",
        stored="datasets",
        blank=True,
    )
    k: int | None = option(
        None,
        "Rollouts per question; an even number (default: 8).",
        "-k",
        type=int,
        metavar="K",
    )
    agent: Callable[..., Any] | None = keyword(
        None, "Python function that plays, if the agent that practised is one."
    )
    restart_step: int | None = keyword(None, "First step to replay; None continues.")
    again: bool = option(False, "Replay everything, even if complete.", "--again", type=bool)
    verbose: bool = keyword(False, "Whether to also list config keys that have no effect.")

    @override
    def __post_init__(self) -> None:
        TracedRequest.__post_init__(self)
        restart_all(self)
