"""The chat completions API, whose form conversations have everywhere in this program."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grpo_practice.core.calls import RESPONSE_ITEMS, Message, Reply, Usage
from grpo_practice.llm.endpoint import place
from grpo_practice.llm.http_response import Response

PATH = "/chat/completions"
MOST_TOKENS = 10**9
"""Maximum plausible token count; sums of larger counts would not fit into the database."""
DONE = "[DONE]"
_NAMES = frozenset({"id", "type", "role", "format"})
"""Keys whose value is an identifier: a later piece with the same key repeats it."""
_TEXTS = frozenset({"content", "reasoning_content", "reasoning", "refusal", "arguments", "text"})
"""Keys whose pieces are concatenated, even if a piece equals all the text before it."""


def request_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body as it is, without the parts that only the Responses API knows."""
    messages: Sequence[Message] = chat["messages"]
    if any(RESPONSE_ITEMS in message for message in messages):
        messages = [{k: v for k, v in m.items() if k != RESPONSE_ITEMS} for m in messages]
    body = {**chat, "messages": messages}
    body.pop("reasoning_summary", None)
    return body


def recognises(body: Any) -> bool:
    """Return True for a completion, and for a piece of one in a stream."""
    return isinstance(body, dict) and "choices" in body


def completion(body: Any) -> Any:
    """Return the reply as it is."""
    return body


def read_reply(answer: Response, *, asked: str, tries: int, seconds: float) -> Reply:
    """Parse the reply in a response for which `retry_policy.decide` returned None.

    The message keeps all its keys. A message without a role gets `assistant`, because otherwise it
    could not be sent back.

    `asked` is the requested model, used if the body does not name a model; `seconds` is the
    duration of the successful try.
    """
    choice = answer.body["choices"][0]
    finish, model = choice.get("finish_reason"), answer.body.get("model")
    return Reply(
        message={"role": "assistant"} | choice["message"],
        finish=finish if isinstance(finish, str) else None,
        usage=read_usage(answer.body.get("usage")),
        answered_by=f"{model if isinstance(model, str) and model else asked}@{place(answer.url)}",
        tries=tries,
        seconds=seconds,
    )


def read_usage(usage: Any) -> Usage:
    """Return the token counts.

    A count is unknown if it is absent or invalid, if all counts are zero, or if a part exceeds its
    whole: more tokens cached than read, or more reasoned than written.
    """
    if not isinstance(usage, dict):
        return Usage()
    tokens_in, tokens_out = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if not tokens_in and not tokens_out:
        return Usage()
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached is None:  # the name that DeepSeek uses
        cached = _count(usage, "prompt_cache_hit_tokens")
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(usage, "reasoning_tokens")
    return Usage(tokens_in, _within(cached, tokens_in), tokens_out, _within(reasoning, tokens_out))


def _within(part: int | None, whole: int | None) -> int | None:
    return None if part is not None and whole is not None and part > whole else part


def _count(counts: Any, name: str) -> int | None:
    n = counts.get(name) if isinstance(counts, dict) else None
    return n if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < MOST_TOKENS else None


def assemble(events: Iterable[tuple[str, str]], which: int | None = None) -> Any:
    """Join the events (name, data) of a stream into the completion's body; None if cut off.

    The body is complete once the reply has a `finish_reason`. After `[DONE]` without a reason it
    may be complete, and the caller decides. An error that the server reports is returned as the
    body, unless the reply was already complete. `which` is the index of the choice to read if
    several were requested; None if there is only one.
    """
    body: dict[str, Any] = {"object": "chat.completion"}
    choice: dict[str, Any] = {}
    done = False
    for name, data in events:
        if done := data.strip() == DONE:
            break
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            break
        if not isinstance(chunk, dict):  # part of an event that was cut off
            break
        if chunk.get("error") or name == "error" or chunk.get("object") == "error":
            # The reply was complete and is billed; an error after it changes nothing.
            if choice.get("finish_reason") is not None:
                break
            return {"error": chunk.get("error") or chunk}
        _take(body, choice, chunk, which)
    if not done and choice.get("finish_reason") is None:
        return None
    return body | {"choices": [_closed(_joined(choice))] if choice else []}


def _take(
    body: dict[str, Any], choice: dict[str, Any], chunk: dict[str, Any], which: int | None
) -> None:
    """Add a chunk to the body; if `which` is None, all choices belong to the one reply."""
    # Skip null: while usage is streamed, all chunks but one have `usage: null`.
    body |= {k: v for k, v in chunk.items() if k not in ("object", "choices") and v}
    choices = chunk.get("choices")
    for piece in choices if isinstance(choices, list) else ():
        if not isinstance(piece, dict) or which not in (None, piece.get("index", which)):
            continue
        message = piece.get("delta") or piece.get("message")  # some servers send the whole message
        choice |= {k: piece[k] for k in ("finish_reason", "error") if piece.get(k)}
        if isinstance(message, dict):
            _merge(choice.setdefault("message", {}), message)


class _Text:
    """A text that is still growing; concatenating every piece would take quadratic time."""

    __slots__ = ("pieces", "size")

    def __init__(self, first: str) -> None:
        self.pieces, self.size = [first], len(first)

    def add(self, piece: str) -> None:
        if piece:
            self.pieces.append(piece)
            self.size += len(piece)

    def is_equal(self, other: str) -> bool:
        # Compare lengths first: if they are equal, joining takes no longer than reading `other`
        # did.
        return self.size == len(other) and "".join(self.pieces) == other


class _Items:
    """A list that is still growing, whose items are found by their mark."""

    __slots__ = ("items", "marked")

    def __init__(self, first: list[Any]) -> None:
        self.items, self.marked = list[Any](), dict[Any, dict[str, Any]]()
        self.extend(first)

    def extend(self, new: list[Any]) -> None:
        """Add the pieces, each to the item with its `index` or `id` if there is one."""
        for piece in new:
            mark = _mark(piece)
            known = self.marked.get(mark) if mark is not None else None
            if known is not None:
                _merge(known, piece)
                continue
            self.items.append(piece)
            if mark is not None:
                self.marked[mark] = piece


def _merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece to an object: texts and lists grow, null changes nothing."""
    for key, new in piece.items():
        match whole.get(key), new:
            case None, list():
                whole[key] = _Items(new)
            case None, _:
                whole[key] = new
            case _, None:
                pass
            case (str() | _Text()) as old, str():
                whole[key] = _grown(key, old, new)
            case dict(old), dict():
                _merge(old, new)
            case list(old), list():
                whole[key] = _Items(old)
                whole[key].extend(new)
            case _Items() as items, list():
                items.extend(new)
            case _:
                whole[key] = new


def _grown(key: str, old: str | _Text, new: str) -> str | _Text:
    """Append a piece to the text, unless it repeats the whole text."""
    if isinstance(old, str):
        if not old or key in _NAMES:
            return old or new
        old = _Text(old)
    if key in _TEXTS or not old.is_equal(new):
        old.add(new)
    return old


def _joined(value: Any) -> Any:
    """Return the complete value as plain JSON."""
    match value:
        case _Text():
            return "".join(value.pieces)
        case _Items():
            return [_joined(item) for item in value.items]
        case list():
            return [_joined(item) for item in value]
        case dict():
            return {key: _joined(item) for key, item in value.items()}
        case _:
            return value


def _mark(item: Any) -> Any:
    """Return the `index` or `id` that distinguishes a list item; None if it has neither."""
    mark = item.get("index", item.get("id")) if isinstance(item, dict) else None
    return mark if isinstance(mark, str | int | float) else None


def _closed(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice in the form of an unstreamed reply."""
    if "message" in choice:
        message = choice["message"]
        message.setdefault("content", None)
        calls = message.get("tool_calls")
        if isinstance(calls, list) and all(isinstance(_mark(c), int) for c in calls):
            # Pieces of parallel calls may arrive in any order.
            calls.sort(key=_mark)
            for call in calls:
                del call["index"]
    return {"index": 0, "finish_reason": None} | choice


def chunks(
    envelope: Mapping[str, Any], message: Mapping[str, Any], finish: str | None, size: int
) -> Iterator[dict[str, Any]]:
    """Yield a reply as the chunks of a stream, its texts in pieces of `size` characters."""
    for delta in _deltas(message, size):
        yield {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**envelope, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}


def _deltas(message: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Yield the message in parts: role and short keys first, then long texts, then calls."""
    texts = ("reasoning_content", "reasoning", "content", "refusal")
    cut = {key: message[key] for key in texts if isinstance(message.get(key), str)}
    rest = {k: v for k, v in message.items() if k not in cut and k != "tool_calls"}
    short = {k: v for k, v in rest.items() if v is not None}
    yield {"role": "assistant", "content": "" if "content" in cut else None} | short
    for key, text in cut.items():
        yield from ({key: piece} for piece in pieces(text, size))
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else []):
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(function, dict) and isinstance(arguments, str):
            begun = {**call, "index": index, "function": {**function, "arguments": ""}}
            yield {"tool_calls": [begun]}
            for piece in pieces(arguments, size):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        elif isinstance(call, dict):
            yield {"tool_calls": [{"index": index, **call}]}


def pieces(text: str, size: int) -> Iterator[str]:
    """Yield the text in pieces of `size` characters."""
    return (text[at : at + size] for at in range(0, len(text), size))
