"""The stages: each kind of call that a run makes, in the table that all other code derives from.

The row of a stage decides its role in the ledger, the values of its prompt, its line of a forecast
and how a simulated endpoint knows it. `tests/test_stages.py` says what a new stage still lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal["play", "tool", "judge", "summarise", "compare", "propose", "merge", "direct"]

Role = Literal["student", "teacher", "judge", "tool"]


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage."""

    role: Role
    per: Literal["rollout", "attempt", "group", "step", "comparison"]
    """Unit that makes the call; `attempt` and `group` are those of groups that teach, and no
    practice makes those of a comparison."""
    always: bool = True
    """False where a unit may make no call."""
    tokens_in: tuple[float, float] = (0, 0)
    """Tokens of one prompt, least and most, where no call was made yet."""
    tokens_out: tuple[float, float] = (0, 0)
    """Tokens of one reply, likewise."""
    slots: frozenset[str] = frozenset()
    """Values that the code fills into `prompts/<stage>.md`; empty where there is no such file."""
    heading: str = ""
    """Heading that the shipped prompt has outside all fences, and no other stage's prompt has."""
    fence: str = ""
    """Name of a fence that only this stage's prompt has; also by this a simulator knows it."""


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
        always=False,  # a group that only confirms proposes nothing
        tokens_in=(500, 3_000),
        tokens_out=(100, 500),
        slots=_slots("experiences lessons"),
        heading="## The lessons",
        fence="lesson",
    ),
    "merge": StageSpec(
        "teacher",
        "step",
        always=False,  # no merge is asked for where nothing may pass
        tokens_in=(800, 8_000),
        tokens_out=(100, 2_000),
        slots=_slots("experiences proposals votes size"),
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


def distillation() -> list[Stage]:
    """Return the stages of a practice run's teacher."""
    return [s for s, spec in STAGES.items() if spec.role == "teacher" and spec.per != "comparison"]
