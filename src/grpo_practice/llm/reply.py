"""Parses the body of a completion into a `Reply`."""

from typing import Any

from grpo_practice.core.calls import Reply, Usage
from grpo_practice.llm.endpoint import place
from grpo_practice.llm.http_response import Response

MOST_TOKENS = 10**9
"""Maximum plausible token count; sums of larger counts would not fit into the database."""


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
