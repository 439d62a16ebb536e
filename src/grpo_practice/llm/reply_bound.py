"""Limits the tokens of a teacher's reply if its settings do not."""

from collections.abc import Mapping
from dataclasses import replace

from grpo_practice.core.calls import Reply, Request, content_texts, reasoning_chars
from grpo_practice.core.stages import STAGES, Stage

ROOM = 4
"""Maximum length of a reply, as a multiple of the longest usual reply of its stage."""


def default_limit(stage: Stage, params: Mapping[str, object]) -> int | None:
    """Return the limit of a first reply in tokens; None if its settings, or nothing, limit it."""
    spec = STAGES[stage]
    if spec.role != "teacher" or {"max_tokens", "reasoning_effort"} & params.keys():
        return None
    return ROOM * round(spec.tokens_out[1])


class ReplyBound:
    """Keeps the replies of a model from filling its whole context.

    A teacher's replies have a known form, but thinking does not, so a model that thinks has no
    bound. A model whose context is too small for prompt and bound has no bound either.
    """

    def __init__(self) -> None:
        self.is_on = True

    def bounded(self, request: Request, stage: Stage, r: int) -> Request:
        """Return the request with its bound, which grows with each repetition.

        Stored replies are looked up by the request without the bound.
        """
        most = default_limit(stage, request.params)
        if not self.is_on or most is None:
            return request
        return replace(request, params={**request.params, "max_tokens": most * (r + 1)})

    def record(self, reply: Reply) -> None:
        """Learn from a reply whether the model thinks."""
        thoughts = content_texts(reply.message.get("content"), thought=True)
        self.is_on &= not (
            reply.usage.tokens_reasoning
            or reasoning_chars(reply.message)
            or thoughts
            or "<think>" in reply.content
            # All tokens went into text that the endpoint does not return.
            or (reply.finish == "length" and not reply.content.strip())
        )
