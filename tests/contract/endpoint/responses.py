"""The Responses API in front of a script for chat completions, as OpenAI's reasoning models do."""

import json
from dataclasses import replace
from typing import Any

from tests.contract.endpoint.actions import Action, Asked, Script, error, status

REFUSAL = (
    "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions."
    " To use function tools, use /v1/responses or set reasoning_effort to 'none'."
)
KEYS = frozenset({
    "model", "input", "instructions", "tools", "tool_choice", "store", "include", "stream", "text",
    "temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "reasoning", "metadata",
})  # fmt: skip
"""Keys of a request; any other is refused, as OpenAI does."""
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def reasoning_model(script: Script, *, seeds: bool = False) -> Script:
    """Play the script at /responses; chat completions refuse tools, and OpenAI refuses seeds."""
    known = KEYS | {"seed"} if seeds else KEYS

    def answered(asked: Asked) -> Action:
        if not asked.path.endswith("/responses"):
            refused = {"type": "invalid_request_error", "param": "reasoning_effort", "code": None}
            return error(400, REFUSAL, **refused) if asked.body.get("tools") else script(asked)
        for key in sorted(asked.body.keys() - known):
            told = {"type": "invalid_request_error", "param": key, "code": "unknown_parameter"}
            return error(400, f"Unknown parameter: '{key}'.", **told)
        chat = chat_of(asked.body)
        as_chat = replace(asked, path="/v1/chat/completions", body=chat)
        as_chat.content = json.dumps(chat).encode()
        action = script(as_chat)
        assert action.answer is not None
        body = json.loads(action.answer(as_chat)[1])
        return status(200, response_of(body)) if "choices" in body else action

    return answered


def chat_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the request as one for a chat completion; a stateless endpoint needs all of it."""
    assert body["store"] is False
    messages = list[dict[str, Any]]()
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    for item in body["input"]:
        match item.get("type", "message"):
            case "reasoning":
                assert item["encrypted_content"]
            case "function_call":
                function = {key: item[key] for key in ("name", "arguments")}
                call = {"id": item["call_id"], "type": "function", "function": function}
                if messages[-1].get("tool_calls"):
                    messages[-1]["tool_calls"].append(call)
                else:
                    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            case "function_call_output":
                said = {"tool_call_id": item["call_id"], "content": item["output"]}
                messages.append({"role": "tool", **said})
            case _:
                content = item["content"]
                text = content if isinstance(content, str) else "".join(p["text"] for p in content)
                messages.append({"role": item["role"], "content": text})
    tools = [
        {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
        for tool in body.get("tools", ())
    ]
    chat: dict[str, Any] = {k: body[k] for k in ("model", "seed", "temperature") if k in body}
    return {**chat, "messages": messages, **({"tools": tools} if tools else {})}


def response_of(chat: dict[str, Any]) -> dict[str, Any]:
    """Return the chat completion as a response, which begins with reasoning."""
    (choice,), used = chat["choices"], chat["usage"]
    message = choice["message"]
    output: list[dict[str, Any]] = [THOUGHT]
    if message["content"]:
        output.append(text(message["content"]))
    for n, call in enumerate(message.get("tool_calls") or ()):
        output.append(called(call["id"], n, **call["function"]))
    usage = {
        "input_tokens": used["prompt_tokens"],
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    return body_of(*output, usage=usage)


def body_of(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a response with these items."""
    head = {"id": "resp_1", "object": "response", "status": "completed", "error": None}
    return {**head, "model": "m-1", "output": [*output], **more}


def text(said: str) -> dict[str, Any]:
    """Return the item of a message."""
    part = {"type": "output_text", "text": said, "annotations": []}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": [part]}


def called(call_id: str, n: int = 0, *, name: str, arguments: str) -> dict[str, Any]:
    """Return the item of a tool call."""
    head = {"id": f"fc_{n}", "type": "function_call", "status": "completed", "call_id": call_id}
    return {**head, "name": name, "arguments": arguments}
