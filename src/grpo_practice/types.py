"""The nouns of the method, as frozen values, and the two Protocols that hold the house together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from grpo_practice.canonical import derive_seed, digest

Message = dict[str, Any]
"""One chat message as the wire has it; an assistant's is kept verbatim."""

Answer = str | int | float | bool | list[Any] | None
"""A gold answer as the dataset has it; a list means alternatives; None means there is none."""

Stage = Literal["play", "tool", "judge", "summarise", "compare", "propose", "merge"]
Role = Literal["student", "teacher", "judge", "tool"]
Outcome = Literal[
    "ok", "truncated", "refused", "content_filter", "context_overflow", "limit", "empty", "error"
]
OpKind = Literal["ADD", "UPDATE", "DELETE", "NONE"]

ROLE_OF: Mapping[Stage, Role] = {
    "play": "student",
    "tool": "tool",
    "judge": "judge",
    "summarise": "teacher",
    "compare": "teacher",
    "propose": "teacher",
    "merge": "teacher",
}

OWN_FAILURES: frozenset[Outcome] = frozenset(
    {"refused", "content_filter", "context_overflow", "empty"}
)
"""Outcomes that are the model's own doing: reward 0 with the reason kept, and not teachable."""


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
    """Its row in the store; 0 before it is stored."""
    sha: str = field(init=False, default="", compare=False)
    """Hex sha256 of the content."""

    def __post_init__(self) -> None:
        content = {
            "question": self.question,
            "answer": self.answer,
            "source": self.source,
            "level": self.level,
            "cluster": self.cluster,
            "meta": dict(self.meta),
        }
        object.__setattr__(self, "sha", digest(content).hex())


@dataclass(frozen=True, slots=True)
class Address:
    """Where in a run a call is made. Not when, by which endpoint, or at which try."""

    branch_id: int
    """The branch that holds the step."""
    step: int
    slot: int
    """The group's place in the step's stored plan; -1 for merge."""
    attempt: int
    """0 … G-1; -1 for compare, propose, merge."""
    stage: Stage


@dataclass(frozen=True, slots=True)
class Scope:
    """An address and what the seeds of the calls made there are derived from."""

    address: Address
    run_seed: int
    sample_sha: str
    epoch: int

    def seed(self, r: int = 0) -> int:
        """The seed of a request made here; `r` > 0 for a deliberate resample."""
        a = self.address
        return derive_seed(self.run_seed, a.stage, self.sample_sha, self.epoch, a.attempt, r)


@dataclass(frozen=True, slots=True)
class Request:
    """A chat completion, before any adaptation to an endpoint."""

    model: str
    params: Mapping[str, Any]
    """Body keys that can change the answer, by canonical name; `seed` always."""
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()

    @property
    def head(self) -> dict[str, Any]:
        """`{model, params, tools}`: what is equal for every request of a stage, but for `seed`."""
        head: dict[str, Any] = {"model": self.model, "params": dict(self.params)}
        if self.tools:
            head["tools"] = list(self.tools)
        return head


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of one or more calls. None means unknown, never 0."""

    tokens_in: int | None = None
    tokens_cached: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    cost_micro: int | None = None
    """Micro-dollars."""

    def __add__(self, other: Usage) -> Usage:
        """Sum of the known parts."""

        def plus(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else a + b

        return Usage(
            plus(self.tokens_in, other.tokens_in),
            plus(self.tokens_cached, other.tokens_cached),
            plus(self.tokens_out, other.tokens_out),
            plus(self.tokens_reasoning, other.tokens_reasoning),
            plus(self.cost_micro, other.cost_micro),
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """An answered request."""

    message: Message
    """The assistant message verbatim, after redaction of secrets."""
    finish: str | None = None
    usage: Usage = Usage()
    answered_by: str = ""
    """Model name in the reply, and the endpoint's host: `model@host`."""
    tries: int = 1
    seconds: float = 0.0
    """Seconds of the try that was answered."""
    replayed: bool = False
    """True when it came from the ledger and cost nothing."""
    call_id: int = 0
    """Its row in the ledger; 0 when it has none."""

    @property
    def content(self) -> str:
        """The message's text, also where it comes in parts; '' when it has none."""
        text = self.message.get("content")
        if isinstance(text, list):
            parts = (part.get("text") for part in text if isinstance(part, dict))
            return "".join(part for part in parts if isinstance(part, str))
        return text if isinstance(text, str) else ""


class Chat(Protocol):
    """A conversation at one scope: what agents, judges and stages hold.

    The model, its settings, the seed and the ledger are behind it. The reply is committed before
    it is returned.

    Raises:
        EndpointError: The request got no usable answer.
        EndpointRefusedError: No request would; the run stops.
    """

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        r: int = 0,
        limit_s: float | None = None,
    ) -> Reply:
        """Ask once; `r` > 0 is a deliberate resample; `limit_s` bounds the request in seconds."""
        ...


class Send(Protocol):
    """Sends one request to an endpoint, with retries inside."""

    async def __call__(self, request: Request, *, limit_s: float | None = None) -> Reply:
        """Send it; `limit_s` bounds the seconds of each try, not the waits between them."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """An answered call as the ledger keeps it."""

    address: Address
    request_hash: bytes
    """First 16 bytes of the chained hash."""
    nth: int
    """Which answer to this same request in this scope."""
    turn: int
    prev_call_id: int | None
    """The call whose conversation this one continues."""
    head: bytes
    """Canonical JSON of `{model, params, tools}`, the seed left out: the same for a whole stage."""
    messages: bytes
    """Canonical JSON of the messages added since `prev_call_id`."""
    name: str
    """Model or tool name as asked."""
    reply: Reply


class Ledger(Protocol):
    """Every answered call, stored before it is used."""

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        """The stored reply, marked `replayed`, or None."""
        ...

    async def put(self, entry: Entry) -> int:
        """Commit the entry; its `call_id`."""
        ...

    async def fail(self, address: Address, error: Exception) -> None:
        """Record that a request got no usable answer."""
        ...


@dataclass(frozen=True, slots=True)
class Played:
    """What one rollout came to, before it is scored."""

    outcome: Outcome
    response: str = ""
    """The final answer's text, as the model gave it."""
    transcript: Sequence[Message] = ()
    reason: str | None = None
    """limit: turns|time|tokens|cost; error: provider|agent|verify|judge|cancelled."""
    error: str | None = None
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    model_s: float = 0.0
    """Seconds spent in the rollout's own model and tool calls."""

    @property
    def answered(self) -> bool:
        """True when there is an answer to verify."""
        if self.outcome == "ok":
            return True
        return self.outcome in ("truncated", "limit") and bool(self.response.strip())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verify function says."""

    reward: float
    """In [0, 1]."""
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
    played: Played
    verdict: Verdict | None = None
    strikes: int = 0
    """Times our own deadline ended it; three are final."""

    @property
    def reward(self) -> float | None:
        """The reward in [0, 1]; None when it failed or could not be scored."""
        return None if self.verdict is None else self.verdict.reward

    @property
    def teachable(self) -> bool:
        """True when it can be compared with its siblings: it answered and has a reward."""
        return self.verdict is not None and self.played.answered


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
    """Its row in the store; 0 before it is stored."""

    def __len__(self) -> int:
        return len(self.experiences)

    def get(self, experience_id: str) -> Experience | None:
        """The experience called `E12`, or None."""
        return next((e for e in self.experiences if e.id == experience_id), None)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one group's comparison suggests."""

    text: str
    call_id: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """A proposed edit of the library."""

    op: OpKind
    target: str | None = None
    """`E12`, for UPDATE and DELETE."""
    text: str | None = None
    """`Name: sentence`, for ADD and UPDATE."""
    from_ops: tuple[int, ...] = ()
    """For a merged operation: which proposals it stands for, by position in the merge prompt."""
    refused: str | None = None
    """Why it was not taken; None when it was."""
    call_id: int = 0


@dataclass(frozen=True, slots=True)
class Distilled:
    """What became of one informative group."""

    slot: int
    lessons: tuple[Lesson, ...] = ()
    operations: tuple[Operation, ...] = ()
    failed: str | None = None
    """Why it taught nothing; None when it was distilled."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One batch of samples and how many attempts each gets. Index = slot."""

    step: int
    epoch: int
    batch: int
    slots: tuple[tuple[int, int], ...]
    """(sample_id, attempts) per slot."""

    @property
    def rollouts(self) -> int:
        """How many rollouts it plans."""
        return sum(attempts for _, attempts in self.slots)
