"""`type: simple`: one question, one reply."""

from grpo_practice.calls import NO_USAGE, Chat, Message, Reply
from grpo_practice.errors import ContentFilterError, ContextOverflowError, EndpointError
from grpo_practice.text import strip_think
from grpo_practice.types import Outcome, Played


async def play_simple(question: str, system: str, chat: Chat, *, limit_s: float) -> Played:
    """What the model answered, and what kind of answer that is.

    An empty answer is asked for once more, as a deliberate resample; then it is the answer.
    """
    messages: list[Message] = [{"role": "user", "content": question}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    replies = list[Reply]()
    try:
        replies.append(await chat(messages, limit_s=limit_s))
        if _outcome(replies[0])[0] == "empty":
            left = limit_s - replies[0].seconds
            replies.append(await chat(messages, r=1, limit_s=left))
    except TimeoutError:
        spent = f"no answer within {limit_s:g} s of the rollout's own time"
        return _played("limit", replies, messages, reason="time", error=spent)
    except ContextOverflowError as e:
        return _played("context_overflow", replies, messages, error=str(e))
    except ContentFilterError as e:
        return _played("content_filter", replies, messages, error=str(e))
    except EndpointError as e:
        return _played("error", replies, messages, reason="provider", error=str(e))
    outcome, why = _outcome(replies[-1])
    return _played(outcome, replies, messages, error=why)


def _played(
    outcome: Outcome,
    replies: list[Reply],
    messages: list[Message],
    *,
    reason: str | None = None,
    error: str | None = None,
) -> Played:
    last = [replies[-1].message] if replies else []
    answered = outcome in ("ok", "truncated", "content_filter")
    return Played(
        outcome=outcome,
        response=answer_of(replies[-1].content) if replies and answered else "",
        transcript=[*messages, *last],
        reason=reason,
        error=error,
        turns=len(replies),
        usage=sum((r.usage for r in replies[1:]), start=replies[0].usage) if replies else NO_USAGE,
        model_s=sum(r.seconds for r in replies),
    )


def _outcome(reply: Reply) -> tuple[Outcome, str | None]:
    """What kind of answer a reply is, and why when it is not a plain one."""
    refusal = reply.message.get("refusal")
    if isinstance(refusal, str) and refusal.strip():
        return "refused", refusal
    if reply.finish == "content_filter":
        return "content_filter", "the provider's filter cut the answer"
    answer = answer_of(reply.content)
    if reply.finish == "length" or strip_think(reply.content) is None:
        return "truncated", None if answer else "all tokens went into thinking: raise max_tokens"
    return ("ok", None) if answer else ("empty", "the model answered nothing")


def answer_of(text: str) -> str:
    """The text outside of `<think>` blocks; '' when one is never closed."""
    return (strip_think(text) or "").strip()
