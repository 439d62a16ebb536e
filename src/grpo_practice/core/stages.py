"""The stages: every kind of call that a run makes, in one table.

All other code derives from this table: the row of a stage determines its role in the ledger, the
values of its prompt, its line in a forecast, and how a simulated endpoint recognises it.
`tests/core/test_stages.py` lists the missing parts of a new stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal["play", "tool", "judge", "summarise", "compare", "propose", "merge", "direct"]

Role = Literal["student", "teacher", "judge", "tool"]


@dataclass(frozen=True, slots=True)
class StageSpec:
    """Row of one stage."""

    role: Role
    per: Literal["rollout", "attempt", "group", "step", "comparison"]
    """Unit that makes the call. `attempt` and `group` count only groups that teach; calls per
    `comparison` are never made in practice.
    """
    always: bool = True
    """False if a unit may make no call."""
    tokens_in: tuple[float, float] = (0, 0)
    """Assumed number of tokens in one prompt (low, high), until a call has been made."""
    tokens_out: tuple[float, float] = (0, 0)
    """Assumed number of tokens in one reply (low, high), until a call has been made."""
    slots: frozenset[str] = frozenset()
    """Values that the code fills into `prompts/<stage>.md`; empty if the stage has no such file."""
    heading: str = ""
    """Heading that only this stage's shipped prompt has, outside all fences."""
    fence: str = ""
    """Name of a fence that only this stage's prompt has; simulators recognise the stage by it."""


def _slots(names: str) -> frozenset[str]:
    return frozenset(["agent_objective", "learning_objective", *names.split()])


STAGES: Mapping[Stage, StageSpec] = {
    "play": StageSpec("student", "rollout", tokens_out=(200, 2_000)),
    "tool": StageSpec("tool", "rollout", heading="## The page at ", fence="web"),
    "judge": StageSpec(
        "judge",
        "rollout",
        tokens_in=(500, 3_000),
        tokens_out=(50, 500),
        heading="## The answer to grade",
        fence="reference",
    ),
    "summarise": StageSpec(
        "teacher",
        "attempt",
        tokens_in=(400, 4_000),
        tokens_out=(200, 800),
        slots=_slots("question answer critique experiences transcript reward words"),
        heading="## The attempt\n",
    ),
    "compare": StageSpec(
        "teacher",
        "group",
        tokens_in=(600, 6_000),
        tokens_out=(100, 600),
        slots=_slots("question answer experiences attempts truth limit instructions"),
        heading="## The attempts",
        fence="summary",
    ),
    "propose": StageSpec(
        "teacher",
        "group",
        always=False,  # a group that only confirms experiences proposes nothing
        tokens_in=(500, 3_000),
        tokens_out=(100, 500),
        slots=_slots("experiences lessons"),
        heading="## The lessons",
        fence="lesson",
    ),
    "merge": StageSpec(
        "teacher",
        "step",
        always=False,  # no merge is requested if the gates would refuse every operation
        tokens_in=(800, 8_000),
        tokens_out=(100, 2_000),
        slots=_slots("experiences proposals votes size disproved"),
        heading="## The proposals",
        fence="proposal",
    ),
    "direct": StageSpec(
        "teacher",
        "comparison",
        always=False,
        tokens_in=(300, 1_000),
        tokens_out=(200, 4_000),
        slots=_slots("limit words length"),
        heading="## The library to write",
    ),
}
"""Stages in the order in which tables show them."""


def goes_in_batches(stage: Stage) -> bool:
    """Return True if many calls of a stage are made together; a call alone is not worth a day."""
    return stage != "tool" and STAGES[stage].per not in ("step", "comparison")


def distillation() -> list[Stage]:
    """Return the stages in which the teacher of a practice run makes calls."""
    return [s for s, spec in STAGES.items() if spec.role == "teacher" and spec.per != "comparison"]
