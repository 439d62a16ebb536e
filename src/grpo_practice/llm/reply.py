"""A completion's body, read into a `Reply`."""

from typing import Any

from grpo_practice.calls import Reply, Usage
from grpo_practice.llm.endpoint import place
from grpo_practice.llm.http_response import Response

MOST_TOKENS = 10**9
"""Limit of a plausible count; sums of larger ones would not fit the database either."""


def read_reply(answer: Response, *, asked: str, tries: int, seconds: float) -> Reply:
    """Return the reply in an answer for which `retry_policy.decide` returned None.

    The message keeps all its keys; one without a role gets `assistant`, as it could not be sent
    back otherwise.

    `asked` is the model of the request, for a body that names none; `seconds` are those of the try
    that was answered.
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
    """Return its token counts.

    A count is unknown where it is absent or no count, where all are zero, and where a part is more
    than its whole: more tokens cached than read, or reasoned than written.
    """
    if not isinstance(usage, dict):
        return Usage()
    tokens_in, tokens_out = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if not tokens_in and not tokens_out:
        return Usage()
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached is None:  # DeepSeek's name
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
