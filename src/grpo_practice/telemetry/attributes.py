"""Attributes of spans: OpenInference, which Phoenix reads, and `gen_ai.*`, which others read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_practice.calls import content_texts
from grpo_practice.store.queries.trace_rows import StoredAttempt, StoredCall
from grpo_practice.text import cut

Value = str | int | float | bool
"""A value of an attribute."""
TEXT = 16_000
"""Characters of a text that is sent."""
MESSAGES = 40
"""Messages of a request that are sent: the first, and the last ones."""


def io(asked: str, said: str) -> dict[str, Value]:
    """Return what went into a span and what came out of it."""
    return {"input.value": cut(asked, TEXT), "output.value": cut(said, TEXT)}


def kind_of(outcome: str) -> dict[str, Value]:
    """Return how something ended, as a value to filter by."""
    return {"grpo_practice.outcome": outcome}


def llm(
    call: StoredCall, messages: Sequence[Mapping[str, Any]], *, content: bool
) -> dict[str, Value]:
    """Return the attributes of a model call; what is unknown is left out."""
    model, _, host = call.answered_by.rpartition("@")
    usage = call.usage
    total = None
    if usage.tokens_in is not None and usage.tokens_out is not None:
        total = usage.tokens_in + usage.tokens_out
    known: dict[str, Value | None] = {
        "llm.model_name": call.name,
        "llm.token_count.prompt": usage.tokens_in,
        "llm.token_count.completion": usage.tokens_out,
        "llm.token_count.total": total,
        "llm.token_count.prompt_details.cache_read": usage.tokens_cached,
        "llm.token_count.completion_details.reasoning": usage.tokens_reasoning,
        "llm.cost.total": None if usage.cost_micro is None else usage.cost_micro / 1e6,
        "llm.finish_reason": call.finish,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": call.name,
        "gen_ai.response.model": model or None,
        "gen_ai.usage.input_tokens": usage.tokens_in,
        "gen_ai.usage.output_tokens": usage.tokens_out,
        "server.address": host or None,
        "grpo_practice.stage": call.stage,
    }
    found = {key: value for key, value in known.items() if value is not None}
    if content:
        kept = [*messages[:1], *messages[1:][-(MESSAGES - 1) :]]
        for i, message in enumerate(kept):
            found |= _message(f"llm.input_messages.{i}.message", message)
        found |= _message("llm.output_messages.0.message", call.reply or {})
        found |= io(_text(kept[-1]) if kept else "", _text(call.reply or {}))
    return found


def tool(call: StoredCall, *, content: bool) -> dict[str, Value]:
    """Return the attributes of a call of a tool."""
    found: dict[str, Value] = {
        "tool.name": call.name,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
    }
    if content:
        given = call.request[0] if call.request else {}
        arguments = json.dumps(given, ensure_ascii=False)
        found["tool.parameters"] = cut(arguments, TEXT)
        found |= io(arguments, _text(call.reply or {}))
    return found


def evaluation(verify: str, of: StoredAttempt, *, content: bool) -> dict[str, Value]:
    """Return the attributes of how a rollout was scored."""
    found: dict[str, Value] = {"gen_ai.evaluation.name": verify}
    if of.reward is not None:
        found["gen_ai.evaluation.score.value"] = of.reward
        found["grpo_practice.reward"] = of.reward
    if content:
        said = {"reward": of.reward, "extracted": of.extracted, "critique": of.critique}
        kept = {key: value for key, value in said.items() if value is not None}
        found |= io(of.response, json.dumps(kept, ensure_ascii=False))
        if of.critique:
            found["gen_ai.evaluation.explanation"] = cut(of.critique, TEXT)
    return found


def _message(prefix: str, message: Mapping[str, Any]) -> dict[str, Value]:
    found: dict[str, Value] = {f"{prefix}.role": str(message.get("role", "assistant"))}
    if text := _text(message):
        found[f"{prefix}.content"] = cut(text, TEXT)
    if isinstance(message.get("tool_call_id"), str):
        found[f"{prefix}.tool_call_id"] = message["tool_call_id"]
    calls = message.get("tool_calls")
    for i, call in enumerate(calls if isinstance(calls, list) else []):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            inner = f"{prefix}.tool_calls.{i}.tool_call"
            found[f"{inner}.id"] = str(call.get("id", ""))
            found[f"{inner}.function.name"] = str(function.get("name", ""))
            found[f"{inner}.function.arguments"] = cut(str(function.get("arguments", "")), TEXT)
    return found


def _text(message: Mapping[str, Any]) -> str:
    return "".join(content_texts(message.get("content")))
