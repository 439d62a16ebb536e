"""The most tokens of a teacher's reply, if its settings have no limit."""

from dataclasses import replace

from grpo_practice.calls import Reply, Request, content_texts, reasoning_chars
from grpo_practice.stages import STAGES, Stage

ROOM = 4
"""How many times as long as the longest usual reply of its stage a reply may be."""


class ReplyBound:
    """Keeps the replies of one model from running to the end of its context.

    A teacher's replies have a known form. Thinking has none, so a model that thinks has no bound;
    nor has one whose context is too small for prompt and bound.
    """

    def __init__(self) -> None:
        self.is_on = True

    def bounded(self, request: Request, stage: Stage, r: int) -> Request:
        """Return the request with its bound, which is longer each time it is asked again.

        Stored replies are found by the request without it.
        """
        spec = STAGES[stage]
        own = {"max_tokens", "reasoning_effort"} & request.params.keys()
        if not self.is_on or spec.role != "teacher" or own:
            return request
        most = ROOM * round(spec.tokens_out[1]) * (r + 1)
        return replace(request, params={**request.params, "max_tokens": most})

    def see(self, reply: Reply) -> None:
        """Learn from a reply whether the model thinks."""
        thoughts = content_texts(reply.message.get("content"), thought=True)
        self.is_on &= not (
            reply.usage.tokens_reasoning
            or reasoning_chars(reply.message)
            or thoughts
            or "<think>" in reply.content
            or (reply.finish == "length" and not reply.content.strip())
        )
