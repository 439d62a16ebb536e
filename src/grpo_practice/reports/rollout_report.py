"""Stored rollouts: one with its question, transcript and score, or many of them in a list."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from grpo_practice.calls import Message
from grpo_practice.reports.base import Report, number
from grpo_practice.store.queries.rollout_list import Counted, RolloutRow
from grpo_practice.store.queries.teacher_calls import TeacherCall as TeacherCall
from grpo_practice.text import brief
from grpo_practice.types import Rollout

CELL = 60
"""Characters of a question or an answer in the summary of a list."""


@dataclass(frozen=True, slots=True, repr=False)
class RolloutReport(Report):
    """One attempt at one question of a run."""

    schema: ClassVar = "grpo-practice.rollout/1"
    in_document: ClassVar = (
        *("run", "step", "rollout.slot", "rollout.attempt", "number", "system", "question"),
        *("rollout.sample.answer", "rollout.played.outcome", "rollout.played.reason"),
        *("rollout.played.error", "rollout.played.response", "reward", "rollout.verdict.critique"),
        *("transcript", "rollout.played.usage", "rollout.played.model_s"),
    )

    run: str
    step: int
    attempts: int
    """Attempts that are planned for its question."""
    rollout: Rollout
    sections: Sequence[tuple[str, str]]
    """Heading and text of each turn, and of how the attempt ended."""
    system: str = ""
    """System prompt that the agent was given; its own program may have sent another one."""
    number: int | None = None
    """Number of the question in the run's dataset, counted from 1; None where that is not known."""

    @property
    def question(self) -> str:
        """The question."""
        return self.rollout.sample.question

    @property
    def transcript(self) -> Sequence[Message]:
        """The messages, as they were sent and received."""
        return self.rollout.played.transcript

    @property
    def reward(self) -> float | None:
        """The reward in [0, 1]; None when it failed or could not be scored."""
        return self.rollout.reward

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the turns, and the reward."""
        at = f"{self.run}, step {self.step}, group {self.rollout.slot}"
        return [
            (f"{at}, attempt {self.rollout.attempt + 1} of {self.attempts}",),
            *self.sections,
            ("outcome", self.rollout.played.outcome),
            ("reward", number(self.reward)),
        ]


# The command's own limits are these, too: imported there, they would make `--help` slow.
MOST_LISTED, MOST_SHOWN = 1_000_000, 10_000
"""Most rollouts of a list, and most questions that are shown with all that was said at once."""


def show_command(ref: str, questions: int) -> str:
    """Return the command that shows so many questions of a reference, or as many as may be."""
    return f"grpo-practice rollouts show {ref} --limit {min(questions, MOST_SHOWN)}"


@dataclass(frozen=True, slots=True)
class Flip:
    """A question's mean reward before and now, right in one of them and wrong in the other."""

    was: float
    now: float

    @property
    def right(self) -> bool:
        """True where it is right now."""
        return is_right(self.now)


def is_right(mean: float) -> bool:
    """Return True for a mean reward of a question that counts as right."""
    return mean >= 0.5 - 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class RolloutsReport(Report):
    """Rollouts of a run, by step, question and attempt: a line each, without what was said."""

    schema: ClassVar = "grpo-practice.rollouts/1"
    in_document: ClassVar = ("run", "step", "compared", "rollouts", "flips", "matching", "all")

    run: str
    step: int | None
    """The only step that it is about; None is all."""
    rollouts: Sequence[RolloutRow]
    """The first of them, as many as were asked for."""
    matching: Counted
    """All that the filters let pass."""
    all: Counted
    """All of the run, or of its step."""
    filters: str = ""
    """Options that chose among them, as they are typed."""
    flips: Mapping[int, Flip] | None = None
    """Sample → how its verdict changed, where only such were asked for."""
    compared: str | None = None
    """Play that flips are compared with."""
    played: Sequence[int] = ()
    """Numbers of questions that were played, where the one that was asked for was not."""

    @property
    def ref(self) -> str:
        """The run and the step, as they are typed."""
        return shlex.quote(self.run if self.step is None else f"{self.run}:{self.step}")

    @property
    def more_command(self) -> str:
        """Command that lists all that the filters let pass, or as many as may be."""
        most = f"--limit {min(self.matching.rollouts, MOST_LISTED)}"
        return f"grpo-practice rollouts list {self.ref}{self.filters} {most}"

    @property
    @override
    def next_command(self) -> str:
        """Command to type now: the one that shows the first of them whole."""
        if self.rollouts:
            first = self.rollouts[0]
            ref = shlex.quote(f"{self.run}:{first.step}")
            chosen = self.filters if first.number is None else f" --question {first.number}"
            return f"grpo-practice rollouts show {ref}{chosen}"
        if self.all.rollouts:
            return f"grpo-practice rollouts list {self.ref}"
        return f"grpo-practice runs show {shlex.quote(self.run)}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each: its place, reward, question and answer."""
        return [
            (self.ref, f"{len(self.rollouts)} of {self.matching.rollouts} rollouts"),
            *(
                (
                    f"step {row.step}, question {row.number or '?'}, attempt {row.attempt + 1}",
                    number(row.reward),
                    brief(row.question, CELL),
                    brief(row.error or row.extracted or row.head, CELL),
                )
                for row in self.rollouts
            ),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class TranscriptsReport(Report):
    """Rollouts of a run with all that was said in them."""

    schema: ClassVar = "grpo-practice.transcripts/1"
    in_document: ClassVar = ("listed.run", "rollouts", "teacher", "listed.matching")

    listed: RolloutsReport
    """The list that they begin."""
    rollouts: Sequence[RolloutReport]
    teacher: Sequence[TeacherCall] = ()
    """Calls of the teacher about their groups."""

    @property
    def shown(self) -> int:
        """Number of groups, which are questions of a step, that the rollouts stand in."""
        return len({(report.step, report.rollout.slot) for report in self.rollouts})

    @property
    def more_command(self) -> str:
        """Command that shows all that the filters let pass, or as many as may be."""
        return show_command(f"{self.listed.ref}{self.listed.filters}", self.listed.matching.groups)

    @property
    @override
    def next_command(self) -> str:
        """Command to type now: the list of them."""
        if not self.rollouts:
            return self.listed.next_command
        return f"grpo-practice rollouts list {self.listed.ref}{self.listed.filters}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the list's rows."""
        return self.listed.summary()
