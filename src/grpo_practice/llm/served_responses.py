"""The Responses API for clients: their requests and our replies, as chat completions.

The other half is `responses`, which sends requests to an endpoint.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_practice.core.calls import RESPONSE_ITEMS, Message, content_texts
from grpo_practice.llm.chat_completions import pieces
from grpo_practice.llm.responses import message_of, objects


def chat_body(given: Mapping[str, Any], before: Sequence[Message] = ()) -> dict[str, Any]:
    """Translate a client's request into the body of a chat completion request.

    `before` has the messages of the response that the request continues.

    Raises:
        ValueError: A key cannot be used; the message names it.
    """
    for key in ("conversation", "prompt", "background"):
        if given.get(key):
            raise ValueError(f"{key!r} is not supported: send the whole conversation as 'input'")
    for key, kind in _KINDS.items():
        if not isinstance(given.get(key), kind | None):
            raise ValueError(f"{key!r} must be {_NAMES[kind]}")
    body = {k: v for k, v in given.items() if v is not None and k not in _DROPPED}
    asked = body.pop("input", None)
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("'input' must be text or a list of objects")
    system: list[Message] = []
    if instructions := body.pop("instructions", None):
        system = [{"role": "system", "content": instructions}]
    body["messages"] = [*system, *before, *_messages(items)]
    if limit := body.pop("max_output_tokens", None):
        body["max_tokens"] = limit
    body["tools"] = [_nested(tool, f"tools[{n}]") for n, tool in enumerate(body.pop("tools", ()))]
    if isinstance(body.get("tool_choice"), dict):
        body["tool_choice"] = _nested(body["tool_choice"], "tool_choice")
    text, reasoning = body.pop("text", {}), body.pop("reasoning", {})
    found = {
        "response_format": _nested_format(text.get("format")),
        "verbosity": text.get("verbosity"),
        "reasoning_effort": reasoning.get("effort"),
        "reasoning_summary": reasoning.get("summary"),
    }
    return body | {key: value for key, value in found.items() if value is not None}


_DROPPED = frozenset({
    "previous_response_id", "store", "include", "truncation", "service_tier", "max_tool_calls",
    "background", "conversation", "prompt", "stream_options", "context_management",
})  # fmt: skip
"""Keys of a request that say how a server keeps or schedules a response."""


_KINDS: Mapping[str, type] = {"instructions": str, "tools": list, "text": dict, "reasoning": dict}
_NAMES: Mapping[type, str] = {str: "text", list: "a list", dict: "an object"}


def _nested(tool: Any, where: str) -> dict[str, Any]:
    """Return a function, or the choice of one, in the form of chat completions."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        kind = tool.get("type") if isinstance(tool, dict) else tool
        raise ValueError(f"'{where}.type' {kind!r} is not supported: only functions are")
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


def _nested_format(wanted: Any) -> Any:
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None if wanted == {"type": "text"} else wanted
    schema = {k: v for k, v in wanted.items() if k != "type"}
    return {"type": "json_schema", "json_schema": schema}


def _messages(items: Sequence[dict[str, Any]]) -> Iterator[Message]:
    """Yield the messages of a request's items; one turn of the model becomes one message."""
    turn = list[dict[str, Any]]()
    for n, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in ("reasoning", "function_call") or item.get("role") == "assistant":
            turn.append(_with_list(item))
            continue
        if turn:
            yield message_of(turn)
            turn = []
        if kind == "function_call_output":
            output = item.get("output")
            parts = [{**p, "type": "text"} for p in objects(output)]
            content = "".join(content_texts(parts)) if isinstance(output, list) else output
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        elif kind == "message" and isinstance(item.get("role"), str):
            content = item.get("content")
            parts = [_chat_part(part) for part in objects(content)]
            yield {"role": item["role"], "content": parts if isinstance(content, list) else content}
        else:
            hint = ": send the item itself" if kind == "item_reference" else ""
            raise ValueError(f"'input[{n}].type' {kind!r} is not supported{hint}")
    if turn:
        yield message_of(turn)


def _with_list(item: dict[str, Any]) -> dict[str, Any]:
    """Return an assistant's item with a type, and its text as a part, as replies have it."""
    if item.get("role") != "assistant":
        return item
    content = item.get("content")
    parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    return {**item, "type": "message", "content": parts}


def _chat_part(part: dict[str, Any]) -> dict[str, Any]:
    """Translate a part of a user's message into that of a chat completion."""
    match part:
        case {"type": "input_text", "text": text}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": url, **rest}:
            return {"type": "image_url", "image_url": {"url": url, **rest}}
        case {"type": "input_file", **rest}:
            return {"type": "file", "file": rest}
        case _:
            return part


def response(chat: Mapping[str, Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Translate a chat completion into the response to a client's request; `name` is its id."""
    choice = chat["choices"][0]
    message, finish = choice["message"], choice["finish_reason"]
    why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish)
    counts = chat.get("usage") or {}
    echoed = {key: given.get(key) for key in ("instructions", "metadata", "temperature", "top_p")}
    return {
        "id": name,
        "object": "response",
        "created_at": chat.get("created", 0),
        "status": "incomplete" if why else "completed",
        "error": None,
        "incomplete_details": {"reason": why} if why else None,
        "model": chat.get("model"),
        "output": [*_output(message, name)],
        "parallel_tool_calls": given.get("parallel_tool_calls", True),
        "previous_response_id": given.get("previous_response_id"),
        "store": bool(given.get("store", True)),
        "tool_choice": given.get("tool_choice") or "auto",
        "tools": given.get("tools") or [],
        **echoed,
        "usage": {
            "input_tokens": counts.get("prompt_tokens") or 0,
            "input_tokens_details": {**_NOT_COUNTED, **_details(counts, "prompt")},
            "output_tokens": counts.get("completion_tokens") or 0,
            "output_tokens_details": {"reasoning_tokens": 0, **_details(counts, "completion")},
            "total_tokens": counts.get("total_tokens") or 0,
        },
    }


_NOT_COUNTED = {"cached_tokens": 0, "cache_write_tokens": 0}


def _details(counts: Mapping[str, Any], of: str) -> Mapping[str, Any]:
    details: Mapping[str, Any] = counts.get(f"{of}_tokens_details") or {}
    return details


def _output(message: Message, name: str) -> Iterator[dict[str, Any]]:
    """Yield the items of an assistant message; their ids follow from the response's."""
    if isinstance(message.get(RESPONSE_ITEMS), list):
        yield from message[RESPONSE_ITEMS]
        return
    if isinstance(thought := message.get("reasoning_content"), str) and thought:
        part = {"type": "reasoning_text", "text": thought}
        yield {"id": f"rs_{name}", "type": "reasoning", "summary": [], "content": [part]}
    text, refusal = "".join(content_texts(message.get("content"))), message.get("refusal")
    parts = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    parts += [{"type": "refusal", "refusal": refusal}] if refusal else []
    calls = message.get("tool_calls") or ()
    done: dict[str, Any] = {"status": "completed"}
    if parts or not calls:
        at = {"id": f"msg_{name}", "type": "message", "role": "assistant"}
        yield {**at, "content": parts, **done}
    for n, call in enumerate(calls):
        function = call.get("function") or {}
        at = {"id": f"fc_{name}_{n}", "type": "function_call", "call_id": call.get("id")}
        yield {**at, "name": function.get("name"), "arguments": function.get("arguments"), **done}


def events(whole: Mapping[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Yield a response as the events of a stream, its texts in pieces of `size` characters."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    told = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")]
    for at, item in enumerate(whole["output"]):
        told += _item_events(item, at, size)
    told.append({"type": f"response.{whole['status']}", "response": whole})
    for n, event in enumerate(told):
        yield {**event, "sequence_number": n}


def _item_events(item: Mapping[str, Any], at: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield the events of an item, which may come from another server and lack any key."""
    kind = str(item.get("type"))
    bare: Mapping[str, Any] = {"function_call": {"arguments": ""}, "message": {"content": []}}
    here: dict[str, Any] = {"output_index": at}
    yield {"type": "response.output_item.added", **here, "item": {**item, **bare.get(kind, {})}}
    here["item_id"] = item.get("id")
    if kind == "function_call":
        name, text = "response.function_call_arguments", item.get("arguments", "")
        yield from ({"type": f"{name}.delta", **here, "delta": p} for p in pieces(text, size))
        yield {"type": f"{name}.done", **here, "name": item.get("name"), "arguments": text}
    for n, part in enumerate(objects(item.get("content")) if kind == "message" else ()):
        here["content_index"] = n
        key = "refusal" if part.get("type") == "refusal" else "text"
        name = "response.refusal" if key == "refusal" else "response.output_text"
        text = part.get(key)
        yield {"type": "response.content_part.added", **here, "part": {**part, key: ""}}
        for piece in pieces(text, size) if isinstance(text, str) else ():
            yield {"type": f"{name}.delta", **here, "delta": piece, "logprobs": []}
        yield {"type": f"{name}.done", **here, key: text, "logprobs": []}
        yield {"type": "response.content_part.done", **here, "part": part}
    yield {"type": "response.output_item.done", "output_index": at, "item": item}
