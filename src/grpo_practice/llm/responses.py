"""The Responses API of an endpoint: requests and replies, translated from and to chat completions.

Requests carry the whole conversation and are not stored by the endpoint (`store: false`). Reasoning
therefore travels with the conversation: an assistant message keeps the items that chat completions
cannot express under `RESPONSE_ITEMS`, and sends them back with the next request.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grpo_practice.core.calls import RESPONSE_ITEMS, Message, content_texts
from grpo_practice.llm.http_response import OtherApiError

PATH = "/responses"

_FINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_FINISH = {"max_output_tokens": "length"}
_ABSENT = frozenset({"stream_options", "max_completion_tokens"})
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
    if "reasoning_effort" in body:
        effort = {"effort": body.pop("reasoning_effort")}
        body["reasoning"] = {**body.get("reasoning", {}), **effort}
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
    elif isinstance(message.get(RESPONSE_ITEMS), list):
        yield from message[RESPONSE_ITEMS]
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


def _part(part: Any) -> Any:
    """Translate a part of a user's message; return an unknown part as it is."""
    if not isinstance(part, Mapping) or part.get("type") not in _PARTS:
        return part
    name, value = part["type"], part.get(part["type"])
    fields = dict(value) if isinstance(value, Mapping) else {name: value}
    if "url" in fields:
        fields["image_url"] = fields.pop("url")
    return {"type": _PARTS[name], **fields}


def completion(body: Any) -> Any:
    """Translate a response into a chat completion; leave an error as it is.

    Raises:
        OtherApiError: The reply is a chat completion.
        ValueError: The response cannot be used; the message says why.
    """
    if not isinstance(body, dict) or body.get("error"):
        return body
    output = body.get("output")
    if not isinstance(output, list):
        if "choices" in body:
            raise OtherApiError("chat.completions")
        raise ValueError("the response has no output")
    status = body.get("status", "completed")
    if status not in ("completed", "incomplete"):
        return {"error": {"message": f"the response's status is {status!r}"}}
    message = message_of(objects(output))
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    if status == "incomplete":
        why = (body.get("incomplete_details") or {}).get("reason")
        finish = _FINISH.get(str(why), str(why or "incomplete"))
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = _usage(body.get("usage"))
    return {"model": body.get("model"), "choices": [choice], "usage": usage}


def message_of(items: Sequence[dict[str, Any]]) -> Message:
    """Return the items of a reply as one assistant message."""
    said, refused, thought = list[str](), list[str](), list[str]()
    calls = list[dict[str, Any]]()
    for item in items:
        parts = objects(item.get("content"))
        match item.get("type"):
            case "message":
                said += [str(p.get("text", "")) for p in parts if p.get("type") == "output_text"]
                refused += [str(p["refusal"]) for p in parts if p.get("refusal")]
            case "function_call":
                function = {"name": item.get("name"), "arguments": item.get("arguments", "")}
                calls.append({"id": item.get("call_id"), "type": "function", "function": function})
            case "reasoning":
                summary = objects(item.get("summary"))
                thought += [str(part.get("text", "")) for part in summary + parts]
            case _:
                pass
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids) or not all(isinstance(i, str) and i for i in ids):
        raise ValueError("two tool calls share a call_id, or one has none")
    message: Message = {"role": "assistant", "content": "".join(said) or None}
    texts = {"refusal": "".join(refused), "reasoning_content": "\n\n".join(filter(None, thought))}
    message |= {key: text for key, text in texts.items() if text}
    if calls:
        message["tool_calls"] = calls
    if any(not _is_plain(item) for item in items):
        message[RESPONSE_ITEMS] = [_sendable(item) for item in items if _is_readable(item)]
    return message


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; [] for any other value."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _is_plain(item: Mapping[str, Any]) -> bool:
    """Return True if the item's text or call is all there is to send back."""
    return item.get("type") in ("message", "function_call") and "phase" not in item


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

    Raises:
        OtherApiError: The stream is a chat completion.
    """
    begun, done = set[Any](), dict[Any, Any]()
    for name, data in events:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(event, dict):
            return None
        if "choices" in event:
            raise OtherApiError("chat.completions")
        kind, index = event.get("type", name), event.get("output_index")
        if kind in _FINAL and isinstance(event.get("response"), dict):
            response = event["response"]
            if response.get("output") or begun != done.keys():
                # Without the items that began and never ended, the reply would look complete.
                return response if response.get("output") else None
            return {**response, "output": [done[at] for at in sorted(done)]}
        if kind == "response.output_item.added":
            begun.add(index)
        elif kind == "response.output_item.done":
            begun.add(index)
            done[index] = event.get("item")
        elif kind == "error" or event.get("error"):
            return {"error": event.get("error") or event}
    return None
