"""One model call, as frozen values, and the Protocols that hold the house together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grpo_practice.canonical import derive_seed
from grpo_practice.errors import EndpointError
from grpo_practice.stages import Stage

Message = dict[str, Any]
"""One chat message as the wire has it; an assistant's is kept verbatim."""

UNASKED = (
    "what its model calls cost is neither stored nor capped, they have no seeds, and the teacher"
    " reads none of them: let the agent ask context.base_url, and switch off the cache of its"
    " library (docs/agents.md)"
)
"""Consequence of answers without a request to the rollout's address, and the way out."""


@dataclass(frozen=True, slots=True)
class Address:
    """Place of a call in a run. The time, the endpoint and the try are no part of it."""

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
        """Return the seed of a request made here; `r` > 0 for a deliberate resample."""
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
        """Return the sum of the known parts."""

        def plus(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else a + b

        return Usage(
            plus(self.tokens_in, other.tokens_in),
            plus(self.tokens_cached, other.tokens_cached),
            plus(self.tokens_out, other.tokens_out),
            plus(self.tokens_reasoning, other.tokens_reasoning),
            plus(self.cost_micro, other.cost_micro),
        )


NO_USAGE = Usage()
"""Nothing is known."""


_THINKING = ("reasoning", "thinking", "thought")
"""Beginnings of the types of parts that are no answer; `reasoning_text` is one of them."""


def content_texts(content: object, *, thought: bool = False) -> list[str]:
    """Return the texts in a content, which may come in parts: its reasoning, or all the rest."""
    if not isinstance(content, list):
        return [content] if isinstance(content, str) and not thought else []
    parts = [part for part in content if isinstance(part, dict)]
    texts = (p.get("text") for p in parts if str(p.get("type")).startswith(_THINKING) == thought)
    return [text for text in texts if isinstance(text, str)]


def reasoning_chars(message: Message) -> int:
    """Return the length of the reasoning that stands beside the answer."""
    texts = (message.get(key) for key in ("reasoning_content", "reasoning"))
    return max(len(text) if isinstance(text, str) else 0 for text in texts)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answered request."""

    message: Message
    """The assistant message verbatim, after redaction of secrets."""
    finish: str | None = None
    usage: Usage = NO_USAGE
    answered_by: str = ""
    """Model name in the reply, and the endpoint's host: `model@host`."""
    price: str | None = None
    """The price list behind `usage.cost_micro`; None when the price is unknown."""
    seeded: bool = True
    """False when the endpoint was asked without the seed, so that it might answer otherwise."""
    tries: int = 1
    seconds: float = 0.0
    """Seconds of the try that was answered."""
    replayed: bool = False
    """True when it came from the ledger and cost nothing."""
    call_id: int = 0
    """Row in the ledger; 0 when it has none."""

    @property
    def content(self) -> str:
        """The message's text, also where it comes in parts; '' when it has none.

        Parts of reasoning are no text of the message.
        """
        return "".join(content_texts(self.message.get("content")))

    @property
    def ended_early(self) -> bool:
        """True when the token limit or a filter ended it, so that its end may be a quotation."""
        return self.finish in ("length", "content_filter")

    @property
    def is_cut(self) -> bool:
        """True for a reply that says nothing, not even why it ended: its stream was cut."""
        others = ("tool_calls", "function_call", "refusal", "audio")
        return not (self.finish or self.content.strip() or any(map(self.message.get, others)))


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


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call as the model reads it; an error is a result, too."""

    text: str
    seconds: float = 0.0
    """Seconds the tool itself took."""
    cost_micro: int | None = 0
    """Micro-dollars; None is unknown."""
    replayed: bool = False
    """True when it came from the ledger and cost nothing."""
    failed: bool = False
    """True when it says why there is none."""


class Tools(Protocol):
    """The tools of one rollout: what agents hold. A result is committed before it is returned."""

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """Tool schemas in OpenAI format, in configured order."""
        ...

    async def __call__(
        self, name: str, arguments: str, *, limit_s: float | None = None
    ) -> ToolResult:
        """Call a tool with the arguments as the model wrote them; a wrong call has a result, too.

        Raises:
            TimeoutError: It was not done within `limit_s` seconds of its own.
            AgentError: What it did before a kill cannot be done again.
            EndpointRefusedError: The service behind it serves nobody any more; the run stops.
        """
        ...


class Send(Protocol):
    """Sends one request to an endpoint, with retries inside."""

    async def __call__(self, request: Request, *, limit_s: float | None = None) -> Reply:
        """Send it; `limit_s` bounds the seconds of each try, not the waits between them.

        When anything but an `EndpointError` ends a request that was sent, a cancellation too, the
        exception's cause is one that says what is known of the tries.
        """
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


@dataclass(frozen=True, slots=True)
class Turn:
    """An answered call of a play, as what was said in that play is put together from it."""

    call_id: int
    prev_call_id: int | None
    order: tuple[int, bytes, int]
    """`turn`, `request_hash`, `nth`: what is told first; the same whoever was answered first."""
    said: Sequence[Message]
    """The messages added since `prev_call_id`, and the reply."""


def ended_by_tool(messages: Sequence[Message], response: str) -> list[Message]:
    """Return the conversation with the result of the tool that its last turn calls."""
    last = messages[-1] if messages else {}
    said = [*messages]
    return [*said, {"role": "tool", "content": response}] if last.get("tool_calls") else said


def conversations(turns: Iterable[Turn]) -> list[Message]:
    """Return all messages of a play: one conversation after another, in the order they began.

    Several calls that continue the same one follow each other.
    """
    follow = defaultdict[int | None, list[Turn]](list)
    there = {turn.call_id: turn for turn in turns}
    for turn in sorted(there.values(), key=lambda turn: turn.order, reverse=True):
        follow[turn.prev_call_id if turn.prev_call_id in there else None].append(turn)
    messages, left = list[Message](), follow[None]
    # No recursion: a conversation may have more turns than Python's stack has frames. The last one
    # is taken first, so both lists are in reverse.
    while left:
        turn = left.pop()
        messages += turn.said
        left += follow[turn.call_id]
    return messages


def one_conversation(turns: Sequence[Turn]) -> list[Message] | None:
    """Return the messages of a play that is one conversation; None for several, or for none."""
    # Each call continues another one, and the first continues none.
    begun = {turn.prev_call_id for turn in turns}
    there = {turn.call_id for turn in turns}
    is_one = len(begun) == len(turns) and len(begun - there) == 1
    return conversations(turns) if is_one else None


class Ledger(Protocol):
    """Every answered call, stored before it is used."""

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        """Return the stored reply, marked `replayed`, or None."""
        ...

    async def put(self, entry: Entry) -> int:
        """Commit the entry, also when whoever waits for that is cancelled; return its `call_id`."""
        ...

    def fail(self, address: Address, error: EndpointError) -> None:
        """Store a request without a usable answer: on disk once anything put after it is."""
        ...
