"""Reports on stored rollouts: one with question, transcript and score, or a list of many."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.calls import Message
from grpo_practice.core.text import brief
from grpo_practice.core.types import Rollout
from grpo_practice.reports.base import Report, number
from grpo_practice.store.queries.group_operations import TeacherCall as TeacherCall
from grpo_practice.store.queries.rollout_list import Counted, RolloutRow

CELL = 60
"""Maximum number of characters of a question or an answer in the summary of a list."""


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
    """Number of attempts planned for the question."""
    rollout: Rollout
    sections: Sequence[tuple[str, str]]
    """Heading and text of each turn, and of the end of the attempt."""
    system: str = ""
    """System prompt passed to the agent; a user's program may have sent another one."""
    number: int | None = None
    """Number of the question in the run's dataset, counted from 1; None if unknown."""

    @property
    def question(self) -> str:
        """The question."""
        return self.rollout.sample.question

    @property
    def transcript(self) -> Sequence[Message]:
        """Messages as they were sent and received."""
        return self.rollout.played.transcript

    @property
    def reward(self) -> float | None:
        """Reward in [0, 1]; None if the attempt failed or could not be scored."""
        return self.rollout.reward

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the turns, the outcome and the reward."""
        at = f"{self.run}, step {self.step}, group {self.rollout.slot}"
        return [
            (f"{at}, attempt {self.rollout.attempt + 1} of {self.attempts}",),
            *self.sections,
            ("outcome", self.rollout.played.outcome),
            ("reward", number(self.reward)),
        ]


# The command repeats these limits, because importing them there would make `--help` slow.
MOST_LISTED, MOST_SHOWN = 1_000_000, 10_000
"""Maximum number of rollouts in a list, and of questions shown together with their transcripts."""


def show_command(ref: str, questions: int) -> str:
    """Return the command that shows this many questions of a reference, up to the maximum."""
    return f"grpo-practice rollouts show {ref} --limit {min(questions, MOST_SHOWN)}"


@dataclass(frozen=True, slots=True)
class Flip:
    """Mean rewards of a question answered correctly in only one of two plays."""

    was: float
    now: float

    @property
    def right(self) -> bool:
        """True if the later answer is right."""
        return is_right(self.now)


def is_right(mean: float) -> bool:
    """Return whether a question with this mean reward is considered right."""
    # A mean of floats may come out just below 0.5.
    return mean >= 0.5 - 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class RolloutsReport(Report):
    """Rollouts of a run by step, question and attempt, one line each, without transcripts."""

    schema: ClassVar = "grpo-practice.rollouts/1"
    in_document: ClassVar = ("run", "step", "compared", "rollouts", "flips", "matching", "all")

    run: str
    step: int | None
    """Step to which the list is limited; None for all steps."""
    rollouts: Sequence[RolloutRow]
    """First matching rollouts, up to the requested number."""
    matching: Counted
    """Counts of all rollouts that match the filters."""
    all: Counted
    """Counts of all rollouts of the run, or of the selected step."""
    filters: str = ""
    """Filter options, as typed on the command line."""
    flips: Mapping[int, Flip] | None = None
    """Sample → its flip, if only questions that became right or wrong were requested."""
    compared: str | None = None
    """Run or step with which the verdicts are compared."""
    questions_played: Sequence[int] = ()
    """Numbers of the questions that were played, if the requested question was not."""

    @property
    def ref(self) -> str:
        """Run and step, as typed on the command line."""
        return shlex.quote(self.run if self.step is None else f"{self.run}:{self.step}")

    @property
    def more_command(self) -> str:
        """Command that lists all matching rollouts, up to the maximum."""
        most = f"--limit {min(self.matching.rollouts, MOST_LISTED)}"
        return f"grpo-practice rollouts list {self.ref}{self.filters} {most}"

    @property
    @override
    def next_command(self) -> str:
        """Command that shows the first listed rollout in full."""
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
        """Return a row for each rollout: its position, reward, question and answer."""
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
    """Rollouts of a run with their transcripts."""

    schema: ClassVar = "grpo-practice.transcripts/1"
    in_document: ClassVar = ("listed.run", "rollouts", "teacher", "listed.matching")

    listed: RolloutsReport
    """List whose first rollouts are shown here."""
    rollouts: Sequence[RolloutReport]
    teacher: Sequence[TeacherCall] = ()
    """Calls to the teacher about the groups of these rollouts."""

    @property
    def shown(self) -> int:
        """Number of groups (each one question in one step) among the shown rollouts."""
        return len({(report.step, report.rollout.slot) for report in self.rollouts})

    @property
    def more_command(self) -> str:
        """Command that shows all matching rollouts, up to the maximum."""
        return show_command(f"{self.listed.ref}{self.listed.filters}", self.listed.matching.groups)

    @property
    @override
    def next_command(self) -> str | None:
        """Command that lists the rollouts; None if all of them are shown."""
        if not self.rollouts:
            return self.listed.next_command
        if len(self.rollouts) >= self.listed.matching.rollouts:
            return None
        return f"grpo-practice rollouts list {self.listed.ref}{self.listed.filters}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the rows of the list."""
        return self.listed.summary()
