"""A reply that came in pieces, put together into the body it would have had in one."""

import json
from collections.abc import Iterable
from typing import Any

DONE = "[DONE]"
_NAMES = frozenset({"id", "type", "role", "format"})
"""Keys that name a thing; a piece that has one again names the same thing."""
_TEXTS = frozenset({"content", "reasoning_content", "reasoning", "refusal", "arguments", "text"})
"""Keys whose pieces make up a text, also where one is equal to all that came before it."""


def assemble(events: Iterable[tuple[str, str]], which: int | None = None) -> Any:
    """The completion's body in a stream's events, given as name and data; None when it was cut.

    `which`: of several choices that were asked for, the one to read; None where one was. It is
    whole once the reply has a `finish_reason`, or `[DONE]` was said. An error that the
    server reports in it is the body, unless the reply was whole by then.
    """
    body: dict[str, Any] = {"object": "chat.completion"}
    choice: dict[str, Any] = {}
    done = False
    for name, data in events:
        if done := data.strip() == DONE:
            break
        chunk = _decoded(data)
        if not isinstance(chunk, dict):  # the half of an event, where it was cut
            break
        if chunk.get("error") or name == "error" or chunk.get("object") == "error":
            if choice.get("finish_reason") is not None:
                break
            return {"error": chunk.get("error") or chunk}
        _take(body, choice, chunk, which)
    if not done and choice.get("finish_reason") is None:
        return None
    return body | {"choices": [_closed(choice)] if choice else []}


def _decoded(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _take(
    body: dict[str, Any], choice: dict[str, Any], chunk: dict[str, Any], which: int | None
) -> None:
    """Add a chunk to what came before. Where one reply is asked for, every choice is of that."""
    body |= {k: v for k, v in chunk.items() if k not in ("object", "choices") and v}
    choices = chunk.get("choices")
    for piece in choices if isinstance(choices, list) else ():
        if not isinstance(piece, dict) or which not in (None, piece.get("index", which)):
            continue
        said = piece.get("delta") or piece.get("message")  # some send it whole
        choice |= {k: piece[k] for k in ("finish_reason", "error") if piece.get(k)}
        if isinstance(said, dict):
            _merge(choice.setdefault("message", {}), said)


def _merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece to an object: texts and lists grow, and null says nothing new."""
    for key, new in piece.items():
        match whole.get(key), new:
            case None, list():
                whole[key] = _extended([], new)
            case None, _:
                whole[key] = new
            case _, None:
                pass
            case str(old), str() if key in _NAMES or (new == old and key not in _TEXTS):
                whole[key] = old or new
            case str(old), str():
                whole[key] = old + new
            case dict(old), dict():
                _merge(old, new)
            case list(old), list():
                _extended(old, new)
            case _:
                whole[key] = new


def _extended(old: list[Any], new: list[Any]) -> list[Any]:
    """The list with the pieces added, each to the item with its `index` or `id` if there is one."""
    for piece in new:
        mark = _mark(piece)
        known = [item for item in old if mark is not None and _mark(item) == mark]
        if known:
            _merge(known[0], piece)
        else:
            old.append(piece)
    return old


def _mark(item: Any) -> Any:
    """What tells an item of a list from its neighbours; None when nothing does."""
    return item.get("index", item.get("id")) if isinstance(item, dict) else None


def _closed(choice: dict[str, Any]) -> dict[str, Any]:
    """The choice as it would have come in one piece."""
    if "message" in choice:
        message = choice["message"]
        message.setdefault("content", None)
        calls = message.get("tool_calls")
        if isinstance(calls, list) and all(isinstance(_mark(c), int) for c in calls):
            calls.sort(key=_mark)
            for call in calls:
                del call["index"]
    return {"index": 0, "finish_reason": None} | choice
