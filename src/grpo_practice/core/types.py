"""The nouns of the method, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args

from grpo_practice.core.calls import NO_USAGE, Message, Usage
from grpo_practice.core.errors import ReplyFailure
from grpo_practice.core.hashing import digest

Answer = str | int | float | bool | list[Any] | None
"""A gold answer as it is in the dataset: a list holds alternatives, None means no gold answer."""

Outcome = Literal[
    "ok", "truncated", "refused", "content_filter", "context_overflow", "limit", "empty", "error"
]

Summaries = Literal["auto", "always", "never"]
"""Whether attempts are summarised before they are compared; `auto`: only if they are too long."""

OpKind = Literal["ADD", "UPDATE", "DELETE", "NONE"]

LessonFinding = Literal["confirmed", "misled", "unclear", "too_narrow"]
"""Finding of a comparison about an experience that the agent had in its prompt."""

HOLDS: frozenset[LessonFinding] = frozenset({"confirmed", "unclear", "too_narrow"})
"""Findings that support the statement of an experience, even if they suggest a rewording."""

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
"""Rules that keep a text out of a library until a person has looked at it."""
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
"""Rules by which an operation is refused; a `held` operation waits for a person's approval."""
TeacherFailure = Literal[ReplyFailure, "context_overflow", "provider"]
"""Kinds of failure of a group's distillation: an unusable reply, or no reply."""

OWN_FAILURES: frozenset[Outcome] = frozenset(
    {"refused", "content_filter", "context_overflow", "empty"}
)
"""Outcomes that are the model's own fault: reward 0 with the reason kept, and not teachable.

They say something about the question, but nothing about how to solve it.
"""

COMPARED: frozenset[Outcome] = frozenset({"ok", "truncated", "limit"})
"""Outcomes that can be compared with the other attempts of the group, if they have a reward.

An attempt that our own deadline ended (`limit` with the reason `time`) has no reward: its progress
depends on how busy the endpoint is.
"""

STRIKES = 3
"""Number of times that our own deadline may end a rollout before the rollout is final."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of a dataset; immutable and identified by its content."""

    question: str
    answer: Answer = None
    source: str = ""
    level: str | None = None
    cluster: str | None = None
    """Family of similar questions that this question belongs to; None means a family of its own."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    id: int = field(default=0, compare=False)
    """Row in the store; 0 before it is stored."""

    @property
    def sha(self) -> str:
        """Hex sha256 of the content."""
        # Computed on demand, not a field: most samples read from a large dataset never need it.
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
    """Ordered samples, in memory or elsewhere; they can be iterated over several times."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples one by one, since they may not fit into memory together."""
        ...


@dataclass(frozen=True, slots=True)
class Gold:
    """Part of a sample from which to tell whether a verify function can use it."""

    answer: Answer
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Outcome of a rollout before it is scored."""

    outcome: Outcome
    response: str = ""
    """Text of the final answer, as the model gave it."""
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
        """True if there is an answer to verify."""
        if self.outcome == "ok":
            return True
        return self.outcome in ("truncated", "limit") and bool(self.response.strip())

    @property
    def unasked(self) -> bool:
        """True for an answer given without any model request to the rollout's address."""
        return self.outcome == "ok" and not self.turns


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of a verify function."""

    reward: float
    """Reward in [0, 1]."""
    critique: str | None = None
    """Sentence that teaches: why the answer is wrong, or which answer was expected."""
    extracted: str | None = None
    """Answer that the function extracted from the response, if it extracted one."""

    def __post_init__(self) -> None:
        if isinstance(self.reward, bool) or not isinstance(self.reward, int | float):
            raise ValueError(f"reward must be a number in [0, 1], not {self.reward!r}")
        if not 0.0 <= self.reward <= 1.0:  # also refuses NaN
            raise ValueError(f"reward must be in [0, 1], not {self.reward!r}")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at one sample: its trajectory and its verdict (None = unknown)."""

    slot: int
    attempt: int
    sample: Sample
    played: Trajectory
    verdict: Verdict | None = None
    strikes: int = 0
    """Times that our own deadline ended the rollout; it is final after `STRIKES`."""

    @property
    def reward(self) -> float | None:
        """Reward in [0, 1]; None if the rollout failed or could not be scored."""
        return None if self.verdict is None else self.verdict.reward

    @property
    def settled(self) -> bool:
        """True if the rollout is final: it has a verdict, or hit our own deadline too often."""
        return self.verdict is not None or self.strikes >= STRIKES

    @property
    def teachable(self) -> bool:
        """True if the rollout can be compared with its siblings.

        Such a rollout has a reward, and either ended by itself or reached a limit of turns or
        tokens. A rollout that reached the limit without an answer has the reward 0.
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
        """Rollouts that can be compared, in attempt order."""
        return [r for r in self.rollouts if r.teachable]


@dataclass(frozen=True, slots=True)
class Experience:
    """One entry of a library: "Name: one sentence", under a label that is never reused."""

    label: int
    text: str

    @property
    def id(self) -> str:
        """ID in prompts and commands, such as `E12`."""
        return f"E{self.label}"


@dataclass(frozen=True, slots=True)
class Library:
    """An immutable version of the ordered set of experiences."""

    experiences: tuple[Experience, ...] = ()
    next_label: int = 1
    """1 + the largest label ever used in this library or its ancestors."""
    id: int = field(default=0, compare=False)
    """Row in the store; 0 before it is stored."""

    def __len__(self) -> int:
        return len(self.experiences)

    def get(self, experience_id: str) -> Experience | None:
        """Return the experience called `E12`, or None."""
        return next((e for e in self.experiences if e.id == experience_id), None)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A suggestion from one group's comparison."""

    text: str
    call_id: int = 0
    experience: str | None = None
    """ID of the experience that the lesson is about, such as `E12`; None for something new."""
    finding: LessonFinding | None = None
    """Finding about that experience, if it is known."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Reason for putting a text into quarantine."""

    rule: QuarantineRule
    sentence: str
    """Reason in words that a person can read."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A proposed edit of the library."""

    op: OpKind
    target: str | None = None
    """ID of the experience, such as `E12`, for UPDATE, DELETE and a NONE that confirms it."""
    text: str | None = None
    """`Name: sentence`, for ADD and UPDATE."""
    from_ops: tuple[int, ...] = ()
    """For a merged operation: the proposals it stands for, as positions in the merge prompt."""
    refused: str | None = None
    """Reason for refusing the operation; None if it was accepted."""
    rule: QuarantineRule | RefusedRule | None = None
    """Rule behind `refused`; None if the operation was accepted."""
    call_id: int = 0
    domains: tuple[str, ...] = ()
    """For a merged operation: the web sites that the groups behind it had read."""
    finding: LessonFinding | None = None
    """Finding about `target` in the underlying lesson; None if that lesson names no experience."""
    why: str | None = None
    """Reason for a removal that no merge requested."""
    disproved: bool = False
    """True if rewards fell with the text that the operation removes."""

    @property
    def applies(self) -> bool:
        """True if the operation was accepted and changes the library."""
        return self.refused is None and self.op != "NONE"

    @property
    def vote(self) -> int:
        """+1 for a vote that keeps the target's statement, -1 to remove or change it."""
        if self.op == "UPDATE":
            return 1 if self.finding in HOLDS else -1
        return -1 if self.op == "DELETE" else 1

    @property
    def quarantined(self) -> bool:
        """True if the operation was refused because of its text."""
        return self.rule in QUARANTINE

    def set_aside(self, why: Quarantine) -> Operation:
        """Return the operation, marked as refused because of its text."""
        return replace(self, refused=why.sentence, rule=why.rule)


ProposalKey = tuple[int, int]
"""Key of a proposal in a step: the group's slot, and the position among the group's operations."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A merged operation and every decision about it. See `practice.merge.edits`."""

    operation: Operation
    label: int | None = None
    """Label of the experience that the edit adds, rewrites or removes; None without any change."""
    behind: tuple[ProposalKey, ...] = ()
    """Proposals that the edit stands for."""
    pruned: bool = False
    """True for a removal that no merge requested."""


def one_vote(votes: int) -> int:
    """Return the single vote of a question in a step, however many votes its attempts cast."""
    return (votes > 0) - (votes < 0)


def sharpens(update: Operation, behind: Iterable[Operation]) -> bool:
    """Return True if an update keeps its target's meaning and makes it clearer or more general.

    The proposals behind it that name the target decide; without any, the update may mean anything.
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
    """Reason why the distillation failed; None if it succeeded."""
    failed_kind: TeacherFailure | None = None
    """Kind of that failure."""
    unanswered: bool = False
    """True if the distillation failed because a request got no answer."""
    unread: tuple[str, ...] = ()
    """Reasons why attempts could not be summarised; the other attempts were compared."""
    shortened: int = 0
    """Number of attempts with a transcript too long for the teacher."""
    cut_chars: int = 0
    """Number of characters cut from these transcripts."""

    @property
    def compared(self) -> bool:
        """True if the comparison could be read, even if its lessons led to no proposal."""
        return self.failed is None or bool(self.lessons)


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One batch of samples and the number of attempts at each. Index = slot."""

    step: int
    epoch: int
    batch: int
    slots: tuple[tuple[int, int], ...]
    """(sample_id, attempts) per slot; 0 attempts for a question that cannot be scored."""

    @property
    def rollouts(self) -> int:
        """Number of planned rollouts."""
        return sum(attempts for _, attempts in self.slots)
