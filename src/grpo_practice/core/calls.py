"""One model call, as frozen values, and the Protocols shared by all packages that make calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from grpo_practice.core.errors import EndpointError
from grpo_practice.core.hashing import derive_seed
from grpo_practice.core.stages import Stage

Message = dict[str, Any]
"""One chat message in its wire format; an assistant's message is kept verbatim."""

ApiName = Literal["chat.completions", "responses"]
"""An API of endpoints; the value of `model_provider.type`."""
API_NAMES: tuple[ApiName, ...] = get_args(ApiName)

RESPONSE_ITEMS = "response_items"
"""Key of an assistant message with the items of a reply of the Responses API, which go back to such
an endpoint word for word; absent if the text and the calls contain everything."""

TOOL_FAILED = "error"
"""Value of `finish` in a stored tool result that is an error."""

UNASKED = (
    "the cost of its model calls is neither stored nor capped, they have no seeds, and the teacher"
    " cannot read them: let the agent send its requests to context.base_url, and disable the cache"
    " of its client library (docs/agents.md)"
)
"""Consequence of an answer without any request to the rollout's address, and how to fix it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Position of a call in a run, independent of the time, the endpoint and the try."""

    branch_id: int
    """Branch that holds the step."""
    step: int
    slot: int
    """Position of the group in the step's stored plan; -1 for merge."""
    attempt: int
    """0 … G-1; -1 for compare, propose, merge."""
    stage: Stage


@dataclass(frozen=True, slots=True)
class Scope:
    """An address, together with the values that determine the seeds of calls made there."""

    address: Address
    run_seed: int
    sample_sha: str
    epoch: int

    def seed(self, r: int = 0) -> int:
        """Return the seed of a request at this address; `r` > 0 for a deliberate resample."""
        a = self.address
        return derive_seed(self.run_seed, a.stage, self.sample_sha, self.epoch, a.attempt, r)


@dataclass(frozen=True, slots=True)
class Request:
    """A chat completion request before it is adapted to an endpoint."""

    model: str
    params: Mapping[str, Any]
    """Body keys that can change the answer, by canonical name; always includes `seed`."""
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
"""Usage about which nothing is known."""


_THINKING = ("reasoning", "thinking", "thought")
"""Prefixes of the types of content parts that hold reasoning, such as `reasoning_text`."""


def content_texts(content: object, *, thought: bool = False) -> list[str]:
    """Return the texts of a message's content, which may be a list of parts.

    With `thought`, return only the reasoning parts; otherwise return all other parts.
    """
    if not isinstance(content, list):
        return [content] if isinstance(content, str) and not thought else []
    parts = [part for part in content if isinstance(part, dict)]
    # str(): a server may leave the type out, or send anything in its place.
    texts = (p.get("text") for p in parts if str(p.get("type")).startswith(_THINKING) == thought)
    return [text for text in texts if isinstance(text, str)]


def reasoning_chars(message: Message) -> int:
    """Return the length of the reasoning that the message carries next to its content."""
    texts = (message.get(key) for key in ("reasoning_content", "reasoning"))
    return max(len(text) if isinstance(text, str) else 0 for text in texts)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    message: Message
    """Assistant message, verbatim except that secrets are redacted."""
    finish: str | None = None
    usage: Usage = NO_USAGE
    answered_by: str = ""
    """Model name in the reply and host of the endpoint: `model@host`."""
    price: str | None = None
    """Price list behind `usage.cost_micro`; None if the price is unknown."""
    seeded: bool = True
    """False if the request was sent without the seed, so that a repeated request may differ."""
    tries: int = 1
    seconds: float = 0.0
    """Seconds that the successful try took."""
    waited_s: float = 0.0
    """Seconds among these before a stream began, in the server's line; 0 if unknown."""
    replayed: bool = False
    """True if the reply was read from the ledger and cost nothing."""
    call_id: int = 0
    """Row in the ledger; 0 if the reply is not in the ledger."""

    @property
    def own_s(self) -> float:
        """Seconds that count against the limit of a rollout."""
        return self.seconds - self.waited_s

    @property
    def content(self) -> str:
        """Text of the message, with its parts joined, or ''.

        Reasoning parts are left out.
        """
        return "".join(content_texts(self.message.get("content")))

    @property
    def ended_early(self) -> bool:
        """True if the token limit or a filter cut the reply short.

        The last words of such a reply may be a quotation, not its conclusion.
        """
        return self.finish in ("length", "content_filter")

    @property
    def is_cut(self) -> bool:
        """True for an empty reply without even a finish reason: its stream was cut."""
        others = ("tool_calls", "function_call", "refusal", "audio")
        return not (self.finish or self.content.strip() or any(map(self.message.get, others)))


class Chat(Protocol):
    """A conversation at one scope: the interface that agents, judges and stages use.

    The Chat hides the model, its settings, the seed and the ledger. Each reply is committed before
    it is returned.

    Raises:
        EndpointError: The request got no usable answer.
        EndpointRefusedError: The endpoint refuses all requests; the run stops.
    """

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        r: int = 0,
        limit_s: float | None = None,
    ) -> Reply:
        """Send one request; `r` > 0 is a deliberate resample; `limit_s` bounds it in seconds."""
        ...


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call as the model reads it; an error is also a result."""

    text: str
    seconds: float = 0.0
    """Seconds that the tool itself took."""
    cost_micro: int | None = 0
    """Micro-dollars; None means unknown."""
    replayed: bool = False
    """True if the result was read from the ledger and cost nothing."""
    failed: bool = False
    """True if the text is an error message instead of a result."""


class Tools(Protocol):
    """The tools of one rollout, for its agent; each result is committed before it is returned."""

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """Tool schemas in OpenAI format, in the configured order."""
        ...

    async def __call__(
        self, name: str, arguments: str, *, limit_s: float | None = None
    ) -> ToolResult:
        """Call a tool with the arguments that the model wrote; invalid calls also return a result.

        Raises:
            TimeoutError: The tool itself took longer than `limit_s` seconds.
            AgentError: The tool acted before it was killed, and that action cannot be repeated.
            EndpointRefusedError: The service behind the tool refuses all requests; the run stops.
        """
        ...


class Send(Protocol):
    """Sends one request to an endpoint; retries happen inside."""

    async def __call__(self, request: Request, *, limit_s: float | None = None) -> Reply:
        """Send the request; `limit_s` bounds the seconds of each try, not the waits between tries.

        If anything other than an `EndpointError` ends a request that was sent, such as a
        cancellation, the exception's cause is an `EndpointError` that describes the tries so far.
        """
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """An answered call as the ledger stores it."""

    address: Address
    request_hash: bytes
    """First 16 bytes of the chained hash."""
    nth: int
    """Number of this answer among the answers to the same request in this scope, from 0."""
    turn: int
    prev_call_id: int | None
    """Call whose conversation this call continues."""
    head: bytes
    """Canonical JSON of `{model, params, tools}` without the seed: the same for a whole stage."""
    messages: bytes
    """Canonical JSON of the messages added since `prev_call_id`."""
    name: str
    """Requested name of the model or tool."""
    reply: Reply


@dataclass(frozen=True, slots=True)
class Turn:
    """An answered call of a play, with the fields needed to assemble the play's transcript."""

    call_id: int
    prev_call_id: int | None
    order: tuple[int, bytes, int]
    """Sort key (`turn`, `request_hash`, `nth`), independent of the order of the replies."""
    said: Sequence[Message]
    """Messages added since `prev_call_id`, and the reply."""


def ended_by_tool(messages: Sequence[Message], response: str) -> list[Message]:
    """Return the conversation, with the response added as the result of a tool called last."""
    last = messages[-1] if messages else {}
    said = [*messages]
    return [*said, {"role": "tool", "content": response}] if last.get("tool_calls") else said


def conversations(turns: Iterable[Turn]) -> list[Message]:
    """Return all messages of a play: one conversation after another, in the order they began."""
    return [message for turn in in_order(turns) for message in turn.said]


def in_order(turns: Iterable[Turn]) -> list[Turn]:
    """Return the calls of one conversation after another, in the order they began.

    Several calls that continue the same conversation follow each other.
    """
    follow = defaultdict[int | None, list[Turn]](list)
    there = {turn.call_id: turn for turn in turns}
    for turn in sorted(there.values(), key=lambda turn: turn.order, reverse=True):
        follow[turn.prev_call_id if turn.prev_call_id in there else None].append(turn)
    found, left = list[Turn](), follow[None]
    # No recursion: a conversation may have more turns than Python's stack has frames. `pop` takes
    # the last turn, so both lists are in reverse order.
    while left:
        turn = left.pop()
        found.append(turn)
        left += follow[turn.call_id]
    return found


def one_conversation(turns: Sequence[Turn]) -> list[Message] | None:
    """Return the messages of a play that is a single conversation; otherwise return None."""
    # In a single conversation, each call continues a different call, and the first continues none.
    begun = {turn.prev_call_id for turn in turns}
    there = {turn.call_id for turn in turns}
    is_one = len(begun) == len(turns) and len(begun - there) == 1
    return conversations(turns) if is_one else None


class Ledger(Protocol):
    """Storage of answered calls; each call is stored before its reply is used."""

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        """Return the stored reply, marked `replayed`, or None."""
        ...

    async def put(self, entry: Entry) -> int:
        """Commit the entry, even if the waiting caller is cancelled, and return its `call_id`."""
        ...

    def fail(self, address: Address, error: EndpointError) -> None:
        """Store a request that got no usable answer; it is on disk once any later `put` is."""
        ...
