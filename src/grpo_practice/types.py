"""The nouns of the method, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args

from grpo_practice.calls import NO_USAGE, Message, Usage
from grpo_practice.canonical import digest
from grpo_practice.errors import ReplyFailure

Answer = str | int | float | bool | list[Any] | None
"""A gold answer as the dataset has it; a list means alternatives; None means there is none."""

Outcome = Literal[
    "ok", "truncated", "refused", "content_filter", "context_overflow", "limit", "empty", "error"
]

Summaries = Literal["auto", "always", "never"]
"""Whether attempts are summarised before they are compared; `auto`: where they are too long."""

OpKind = Literal["ADD", "UPDATE", "DELETE", "NONE"]

LessonFinding = Literal["confirmed", "misled", "unclear", "too_narrow"]
"""Finding of a comparison about an experience that the agent has."""

HOLDS: frozenset[LessonFinding] = frozenset({"confirmed", "unclear", "too_narrow"})
"""Findings by which an experience is right, however it may be reworded."""

QuarantineRule = Literal[
    "web_address",
    "role_mark",
    "code_fence",
    "markup",
    "sets_aside_instructions",
    "asks_for_secrets",
    "talks_to_grader",
    "dictates_answer",
    "hidden_characters",
    "mixed_scripts",
    "gives_answer_away",
    "one_site",
    "repeats_attempt",
]
"""Kinds of reasons for which a text is kept out of a library until a person has looked at it."""
QUARANTINE = frozenset(get_args(QuarantineRule))
RefusedRule = Literal[
    "unknown_id",
    "second_operation",
    "no_text",
    "too_long",
    "duplicate",
    "beyond_limit",
    "library_full",
    "outvoted",
    "held",
]
"""Kinds of reasons for which an operation is not taken; `held`: not until a person approves it."""
TeacherFailure = Literal[ReplyFailure, "context_overflow", "provider"]
"""Kinds of reasons for which a group's distillation fails: a useless reply, or none at all."""

OWN_FAILURES: frozenset[Outcome] = frozenset(
    {"refused", "content_filter", "context_overflow", "empty"}
)
"""Outcomes that are the model's own doing: reward 0 with the reason kept, and not teachable.

They say something of the question, and nothing of how to work on it.
"""

COMPARED: frozenset[Outcome] = frozenset({"ok", "truncated", "limit"})
"""Outcomes that a group's other attempts can be compared with, where they have a reward.

Our own deadline (`limit` with the reason `time`) gives none: how far an attempt comes in it depends
on how busy the endpoint is.
"""

MeanOver = Literal["all", "weighted"]
"""Rollouts that the mean reward of a step is over.

`weighted`: all, twice those of groups that might have been left out.
"""

STRIKES = 3
"""Number of times our own deadline may end a rollout before that is final."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of a dataset; immutable, addressed by its content."""

    question: str
    answer: Answer = None
    source: str = ""
    level: str | None = None
    cluster: str | None = None
    """Questions that come in families share one; None means the question itself."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    id: int = field(default=0, compare=False)
    """Row in the store; 0 before it is stored."""

    @property
    def sha(self) -> str:
        """Hex sha256 of the content."""
        # Not a field: most samples that are read from a large dataset need none.
        content = {
            "question": self.question,
            "answer": self.answer,
            "source": self.source,
            "level": self.level,
            "cluster": self.cluster,
            "meta": dict(self.meta),
        }
        return digest(content).hex()


class Samples(Protocol):
    """Samples in their order, wherever they are; they can be walked several times."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def __iter__(self) -> Iterator[Sample]:
        """Yield each, one by one where they may not fit into memory."""
        ...


@dataclass(frozen=True, slots=True)
class Gold:
    """Part of a sample that tells whether a verify function can use it."""

    answer: Answer
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Outcome of a rollout before it is scored."""

    outcome: Outcome
    response: str = ""
    """The final answer's text, as the model gave it."""
    transcript: Sequence[Message] = ()
    reason: str | None = None
    """limit: turns|time|tokens|cost; error: provider|agent|verify|judge|cancelled."""
    error: str | None = None
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = NO_USAGE
    model_s: float = 0.0
    """Seconds spent in the rollout's own model and tool calls."""

    @property
    def answered(self) -> bool:
        """True when there is an answer to verify."""
        if self.outcome == "ok":
            return True
        return self.outcome in ("truncated", "limit") and bool(self.response.strip())

    @property
    def unasked(self) -> bool:
        """True for an answer for which no model was asked at the rollout's address."""
        return self.outcome == "ok" and not self.turns


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of a verify function."""

    reward: float
    """Reward in [0, 1]."""
    critique: str | None = None
    """The sentence that teaches: why it is wrong, or what was expected."""
    extracted: str | None = None
    """The answer the function read out of the response, where it read one."""

    def __post_init__(self) -> None:
        if isinstance(self.reward, bool) or not isinstance(self.reward, int | float):
            raise ValueError(f"reward must be a number in [0, 1], not {self.reward!r}")
        if not 0.0 <= self.reward <= 1.0:  # also refuses NaN
            raise ValueError(f"reward must be in [0, 1], not {self.reward!r}")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at one sample: what was played, and what it is worth (None = unknown)."""

    slot: int
    attempt: int
    sample: Sample
    played: Trajectory
    verdict: Verdict | None = None
    strikes: int = 0
    """Times our own deadline ended it; `STRIKES` are final."""

    @property
    def reward(self) -> float | None:
        """The reward in [0, 1]; None when it failed or could not be scored."""
        return None if self.verdict is None else self.verdict.reward

    @property
    def settled(self) -> bool:
        """True when nothing is left to do: it has a verdict, or our own deadline ended it."""
        return self.verdict is not None or self.strikes >= STRIKES

    @property
    def teachable(self) -> bool:
        """True when it can be compared with its siblings.

        Such a rollout has a reward, and ended by itself or at a limit of turns or tokens, which is
        worth 0 where it left no answer.
        """
        return self.verdict is not None and self.played.outcome in COMPARED


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one sample in one step, in attempt order. Shape: [G]."""

    slot: int
    sample: Sample
    rollouts: Sequence[Rollout]

    @property
    def teachable(self) -> list[Rollout]:
        """The rollouts that can be compared, in attempt order."""
        return [r for r in self.rollouts if r.teachable]


@dataclass(frozen=True, slots=True)
class Experience:
    """One entry of a library: "Name: one sentence", under a label that is never reused."""

    label: int
    text: str

    @property
    def id(self) -> str:
        """`E12`."""
        return f"E{self.label}"


@dataclass(frozen=True, slots=True)
class Library:
    """An immutable version of the ordered set of experiences."""

    experiences: tuple[Experience, ...] = ()
    next_label: int = 1
    """1 + the largest label ever given along the line of descent."""
    id: int = field(default=0, compare=False)
    """Row in the store; 0 before it is stored."""

    def __len__(self) -> int:
        return len(self.experiences)

    def get(self, experience_id: str) -> Experience | None:
        """Return the experience called `E12`, or None."""
        return next((e for e in self.experiences if e.id == experience_id), None)


@dataclass(frozen=True, slots=True)
class Lesson:
    """Suggestion of one group's comparison."""

    text: str
    call_id: int = 0
    experience: str | None = None
    """`E12`: the experience of the library that it is about; None for something new."""
    finding: LessonFinding | None = None
    """Finding about that experience, where it is known."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Reason for setting a text aside."""

    rule: QuarantineRule
    sentence: str
    """The reason, for a person."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A proposed edit of the library."""

    op: OpKind
    target: str | None = None
    """`E12`, for UPDATE and DELETE, and for a NONE that confirms it."""
    text: str | None = None
    """`Name: sentence`, for ADD and UPDATE."""
    from_ops: tuple[int, ...] = ()
    """For a merged operation: which proposals it stands for, by position in the merge prompt."""
    refused: str | None = None
    """Reason for not taking it; None when it was taken."""
    rule: QuarantineRule | RefusedRule | None = None
    """The rule behind `refused`; None when it was taken."""
    call_id: int = 0
    domains: tuple[str, ...] = ()
    """For a merged operation: the web sites that the groups behind it had read."""
    finding: LessonFinding | None = None
    """Finding of the lesson behind it about `target`; None when it names no experience."""
    why: str | None = None
    """Reason for a removal that no merge asked for."""

    @property
    def applies(self) -> bool:
        """True when it was taken and changes something."""
        return self.refused is None and self.op != "NONE"

    @property
    def vote(self) -> int:
        """+1 when it speaks for its target, -1 when its target would go or say something else."""
        if self.op == "UPDATE":
            return 1 if self.finding in HOLDS else -1
        return -1 if self.op == "DELETE" else 1

    @property
    def quarantined(self) -> bool:
        """True when it was refused for what its text holds."""
        return self.rule in QUARANTINE

    def set_aside(self, why: Quarantine) -> Operation:
        """Return the operation as refused for what its text holds."""
        return replace(self, refused=why.sentence, rule=why.rule)


ProposalKey = tuple[int, int]
"""A proposal of a step: its group's slot, and its place among the group's operations."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A merged operation with all that was decided about it. See `practice.merge.edits`."""

    operation: Operation
    label: int | None = None
    """Label of the experience that it makes, rewrites or removes; None when it changes nothing."""
    behind: tuple[ProposalKey, ...] = ()
    """Proposals that it stands for."""
    pruned: bool = False
    """True for a removal that no merge asked for."""


def one_vote(votes: int) -> int:
    """Return the one vote that a question has in a step, however often it says so."""
    return (votes > 0) - (votes < 0)


def sharpens(update: Operation, behind: Iterable[Operation]) -> bool:
    """Return True when an update says what its target says, more clearly or for more cases.

    Those of the proposals behind it that name the target decide; without one it may say anything.
    """
    named = [op for op in behind if op.target == update.target]
    return update.op == "UPDATE" and bool(named) and all(op.vote > 0 for op in named)


@dataclass(frozen=True, slots=True)
class Distilled:
    """Result of distilling one informative group."""

    slot: int
    lessons: tuple[Lesson, ...] = ()
    operations: tuple[Operation, ...] = ()
    failed: str | None = None
    """Reason why it taught nothing; None when it was distilled."""
    failed_kind: TeacherFailure | None = None
    """Kind of that failure."""
    unanswered: bool = False
    """True when it failed because a request got no answer."""
    unread: tuple[str, ...] = ()
    """Reasons why attempts could not be summarised; the others were compared."""
    shortened: int = 0
    """Attempts whose transcript was too long for the teacher."""
    cut_chars: int = 0
    """Characters of these that it did not read."""

    @property
    def compared(self) -> bool:
        """True when a comparison could be read, also where no proposal came of its lessons."""
        return self.failed is None or bool(self.lessons)


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One batch of samples and how many attempts each gets. Index = slot."""

    step: int
    epoch: int
    batch: int
    slots: tuple[tuple[int, int], ...]
    """(sample_id, attempts) per slot; no attempts for a question that cannot be scored."""

    @property
    def rollouts(self) -> int:
        """Number of planned rollouts."""
        return sum(attempts for _, attempts in self.slots)
