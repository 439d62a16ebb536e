"""`type: simple` without tools: one question, one reply."""

from collections.abc import Sequence

from grpo_practice.core.calls import NO_USAGE, Message, Reply
from grpo_practice.core.errors import (
    AgentError,
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
)
from grpo_practice.core.text import strip_think
from grpo_practice.core.types import Outcome, Trajectory
from grpo_practice.rollout.agents import RolloutContext


async def play_simple(question: str, system: str, context: RolloutContext) -> Trajectory:
    """Send one request; if the answer is empty, send one more, as a deliberate resample."""
    messages, replies = opening_messages(question, system), list[Reply]()
    try:
        replies.append(await context.chat(messages, limit_s=context.limit_s))
        if outcome_of(replies[0])[0] == "empty":
            left = context.limit_s - replies[0].own_s
            # `r=1` gives another seed; an identical request would return the stored reply.
            replies.append(await context.chat(messages, r=1, limit_s=left))
    except (TimeoutError, AgentError, EndpointError) as e:
        return failed_trajectory(e, context.limit_s, messages, replies)
    outcome, why = outcome_of(replies[-1])
    return trajectory(outcome, messages, replies, error=why)


def opening_messages(question: str, system: str) -> list[Message]:
    """Return the first messages of a conversation."""
    messages: list[Message] = [{"role": "user", "content": question}]
    return [{"role": "system", "content": system}, *messages] if system else messages


_ALL_THOUGHT = "all tokens went into thinking: raise agent.model.model_settings.max_tokens"


def failed_trajectory(
    error: TimeoutError | AgentError | EndpointError,
    limit_s: float,
    messages: Sequence[Message],
    replies: Sequence[Reply],
) -> Trajectory:
    """Return the trajectory of a rollout that an error ended without an answer."""
    match error:
        case TimeoutError():
            spent = (
                f"no answer within {limit_s:g} s of the rollout's own time; unless model_provider"
                " has `stream: true`, this includes waits in the server's line"
            )
            return trajectory("limit", messages, replies, reason="time", error=spent)
        case ContextOverflowError():
            return trajectory("context_overflow", messages, replies, error=str(error))
        case ContentFilterError():
            return trajectory("content_filter", messages, replies, error=str(error))
        case _:
            reason = "agent" if isinstance(error, AgentError) else "provider"
            return trajectory("error", messages, replies, reason=reason, error=str(error))


def trajectory(
    outcome: Outcome,
    messages: Sequence[Message],
    replies: Sequence[Reply],
    *,
    reason: str | None = None,
    error: str | None = None,
) -> Trajectory:
    """Return the finished trajectory; if the last reply is an answer, its text is the answer."""
    last = [replies[-1].message] if replies else []
    answered = outcome in ("ok", "truncated", "content_filter")
    return Trajectory(
        outcome=outcome,
        response=answer_of(replies[-1].content) if replies and answered else "",
        transcript=[*messages, *last],
        reason=reason,
        error=error,
        turns=len(replies),
        usage=sum((r.usage for r in replies[1:]), start=replies[0].usage) if replies else NO_USAGE,
        model_s=sum(r.seconds for r in replies),
    )


def outcome_of(reply: Reply) -> tuple[Outcome, str | None]:
    """Return the outcome of a reply, and the reason if the reply is not a normal answer."""
    refusal = reply.message.get("refusal")
    if isinstance(refusal, str) and refusal.strip():
        return "refused", refusal
    if reply.finish == "content_filter":
        return "content_filter", "the provider's filter cut off the answer"
    answer = answer_of(reply.content)
    if reply.finish == "length" or strip_think(reply.content) is None:
        return "truncated", None if answer else _ALL_THOUGHT
    return ("ok", None) if answer else ("empty", "the model's answer is empty")


def answer_of(text: str) -> str:
    """Return the text outside `<think>` blocks; '' if a block is never closed."""
    return (strip_think(text) or "").strip()
