"""The Responses API of an endpoint: requests and replies, translated from and to chat completions.

Requests carry the whole conversation and are not stored by the endpoint (`store: false`). Reasoning
therefore travels with the conversation: an assistant message keeps the items that chat completions
cannot express under `RESPONSE_ITEMS`, and sends them back with the next request.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grpo_practice.core.calls import RESPONSE_ITEMS, Message, content_texts

PATH = "/responses"

_FINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_SAID = ("message", "function_call")
_ABSENT = frozenset({"stream_options", "max_completion_tokens", "logprobs"})
"""Settings of chat completions without a counterpart, or with another name, here."""
_PARTS = {"text": "input_text", "image_url": "input_image", "file": "input_file"}
_REASONING = ("encrypted_content", "content")
"""Keys of a reasoning item without which an endpoint that stores nothing cannot read it."""


def request_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the body of a chat completion request."""
    body = {k: v for k, v in chat.items() if k not in _ABSENT}
    messages = list(body.pop("messages"))
    first = messages[0] if messages else {}
    if first.get("role") in ("system", "developer") and isinstance(first.get("content"), str):
        body["instructions"] = first["content"]
        del messages[0]
    body["input"] = [item for message in messages for item in _input(message)]
    limit = body.pop("max_tokens", chat.get("max_completion_tokens"))
    if limit is not None:
        body["max_output_tokens"] = limit
    if "tools" in body:
        body["tools"] = [_flat(tool) for tool in body["tools"]]
    if isinstance(body.get("tool_choice"), Mapping):
        body["tool_choice"] = _flat(body["tool_choice"])
    for name in ("effort", "summary"):
        if f"reasoning_{name}" in body:
            value = body.pop(f"reasoning_{name}")
            body["reasoning"] = {**body.get("reasoning", {}), name: value}
    text = dict(body.get("text", {}))
    if "verbosity" in body:
        text["verbosity"] = body.pop("verbosity")
    if "response_format" in body:
        text["format"] = _format(body.pop("response_format"))
    if text:
        body["text"] = text
    return {"store": False, "include": ["reasoning.encrypted_content"], **body}


def _flat(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function, or the choice of one, with its fields beside `type`."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        return dict(tool)
    # Here `strict` is on by default; chat completions have it off.
    strict = {"strict": function.get("strict", False)} if "parameters" in function else {}
    return {"type": "function", **function, **strict}


def _format(wanted: Any) -> Any:
    schema = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
    return {"type": "json_schema", **schema} if isinstance(schema, Mapping) else wanted


def _input(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the items of a message."""
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        output = "".join(content_texts(content))
        yield {
            "type": "function_call_output",
            "call_id": message.get("tool_call_id"),
            "output": output,
        }
    elif role != "assistant":
        parts = [_part(part) for part in content] if isinstance(content, list) else content
        yield {"role": role, "content": parts}
    elif items := _unchanged(message):
        yield from items
    else:
        calls = message.get("tool_calls") or ()
        text = "".join(content_texts(content)) or message.get("refusal") or ""
        if text or not calls:
            yield {"role": "assistant", "content": text}
        for call in calls:
            function = call.get("function") or {}
            yield {
                "type": "function_call",
                "call_id": call.get("id"),
                "name": function.get("name"),
                "arguments": function.get("arguments"),
            }


def _unchanged(message: Message) -> list[dict[str, Any]]:
    """Return the items of an assistant message; [] if its text or calls were changed since."""
    items = objects(message.get(RESPONSE_ITEMS))
    if not items or _text_of(items) != "".join(content_texts(message.get("content"))):
        return []
    called = [(i.get("call_id"), i.get("name"), i.get("arguments", "")) for i in _calls_in(items)]
    calls = [(call, call.get("function") or {}) for call in objects(message.get("tool_calls"))]
    told = [(call.get("id"), f.get("name"), f.get("arguments")) for call, f in calls]
    return items if called == told else []


def _text_of(items: Sequence[dict[str, Any]]) -> str:
    """Return the text of a reply, without the comments before the part marked as the answer."""
    said, answers = list[str](), list[str]()
    for item in items:
        if item.get("type") == "message":
            parts = objects(item.get("content"))
            texts = [p.get("text") for p in parts if p.get("type") == "output_text"]
            text = "".join([t for t in texts if isinstance(t, str)])
            (answers if item.get("phase") == "final_answer" else said).append(text)
    return "\n\n".join(filter(None, answers or said))


def _calls_in(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if item.get("type") == "function_call"]


def _part(part: Any) -> Any:
    """Translate a part of a user's message; return an unknown part as it is."""
    if not isinstance(part, Mapping) or str(part.get("type")) not in _PARTS:
        return part
    name, value = part["type"], part.get(part["type"])
    fields = dict(value) if isinstance(value, Mapping) else {name: value}
    if "url" in fields:
        fields["image_url"] = fields.pop("url")
    return {"type": _PARTS[name], **fields}


def recognises(body: Any) -> bool:
    """Return True for a response, and for an event about one."""
    if not isinstance(body, dict):
        return False
    return body.get("object") == "response" or str(body.get("type")).startswith("response.")


def completion(body: Any) -> Any:
    """Translate a response into a chat completion; leave an error as it is.

    Raises:
        ValueError: The response cannot be used; the message says why.
    """
    if not isinstance(body, dict) or body.get("error"):
        return body
    output = body.get("output")
    if not isinstance(output, list):
        raise ValueError("the response has no output")
    status = body.get("status", "completed")
    if status not in ("completed", "incomplete"):
        return {"error": {"message": f"the response's status is {status!r}"}}
    items = objects(output)
    message = message_of(items)
    # A model that says nothing sends an empty message; without any, the response is not its answer.
    if status == "completed" and not any(item.get("type") in _SAID for item in items):
        raise ValueError("the response has neither a message nor a call")
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    if status == "incomplete":
        details = body.get("incomplete_details")
        filtered = isinstance(details, dict) and details.get("reason") == "content_filter"
        finish = "content_filter" if filtered else "length"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = _usage(body.get("usage"))
    return {"model": body.get("model"), "choices": [choice], "usage": usage}


def message_of(items: Sequence[dict[str, Any]]) -> Message:
    """Return the items of a reply as one assistant message.

    Raises:
        ValueError: Two tool calls have the same id, or the arguments of one are not text.
    """
    message: Message = {"role": "assistant", "content": _text_of(items) or None}
    refused, thought, is_plain = list[str](), list[str](), True
    for item in items:
        is_plain = is_plain and (_is_plain(item) or not _is_readable(item))
        match item.get("type"):
            case "message":
                parts = objects(item.get("content"))
                refused += [str(p["refusal"]) for p in parts if p.get("refusal")]
            case "reasoning":
                parts = objects(item.get("summary")) + objects(item.get("content"))
                thought += [str(part.get("text", "")) for part in parts]
            case _:
                pass
    if refused:
        message["refusal"] = "".join(refused)
    if told := "\n\n".join(filter(None, thought)):
        message["reasoning_content"] = told
    if calls := _calls_in(items):
        message["tool_calls"] = _chat_calls(calls)
    # Without its reasoning, an item has to go back without its id, too: endpoints look for both.
    if not is_plain:
        message[RESPONSE_ITEMS] = [_sendable(item) for item in items if _is_readable(item)]
    return message


def _chat_calls(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    calls = list[dict[str, Any]]()
    for item in items:
        function = {"name": item.get("name"), "arguments": item.get("arguments", "")}
        if not isinstance(function["arguments"], str):
            raise ValueError("the arguments of a tool call are not text")
        calls.append({"id": item.get("call_id"), "type": "function", "function": function})
    ids = [call["id"] for call in calls]
    if not all(isinstance(i, str) and i for i in ids) or len(set(ids)) < len(ids):
        raise ValueError("two tool calls share a call_id, or one has none")
    return calls


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; [] for any other value."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _is_plain(item: Mapping[str, Any]) -> bool:
    """Return True if the item's text or call is all there is to send back."""
    return item.get("type") in _SAID and "phase" not in item


def _is_readable(item: Mapping[str, Any]) -> bool:
    return item.get("type") != "reasoning" or any(item.get(key) for key in _REASONING)


def _sendable(item: Mapping[str, Any]) -> dict[str, Any]:
    # Endpoints return null for absent fields, and refuse it in a request.
    return {key: value for key, value in item.items() if value is not None}


def _usage(usage: Any) -> Any:
    if not isinstance(usage, dict):
        return None
    return {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }


def assemble(events: Iterable[tuple[str, str]], which: int | None = None) -> Any:
    """Return the response of a stream's last event; None if the stream was cut off.

    There is only one choice, so `which` has no effect.
    """
    begun, done = set[int](), dict[int, Any]()
    for kind, event in _decoded(events):
        index = event.get("output_index")
        at = index if isinstance(index, int) else -1
        if kind in _FINAL and isinstance(event.get("response"), dict):
            response = event["response"]
            if response.get("output") or begun != done.keys():
                # Without the items that began and never ended, the reply would look complete.
                return response if response.get("output") else None
            return {**response, "output": [done[at] for at in sorted(done)]}
        if kind == "response.output_item.added":
            begun.add(at)
        elif kind == "response.output_item.done":
            begun.add(at)
            if at >= 0:  # otherwise its place is unknown
                done[at] = event.get("item")
        elif kind == "error" or event.get("error"):
            return {"error": event.get("error") or event}
    return None


def _decoded(events: Iterable[tuple[str, str]]) -> Iterator[tuple[object, dict[str, Any]]]:
    """Yield the events with their kinds, up to the first one that was cut off."""
    for name, data in events:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        yield event.get("type", name), event
