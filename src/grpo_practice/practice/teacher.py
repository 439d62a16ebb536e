"""The teacher: how every stage of distillation asks it, and asks again."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from grpo_practice.agents.simple import outcome_of
from grpo_practice.calls import Address, Chat, Message, Reply, Scope
from grpo_practice.errors import ConfigError, ReplyError
from grpo_practice.fences import Fences
from grpo_practice.practice.reading import ASSUMED_CONTEXT, room_of
from grpo_practice.prompts import STORED_HINT, Prompt
from grpo_practice.prompts.template import TemplateFault
from grpo_practice.stages import Stage
from grpo_practice.text import brief
from grpo_practice.types import Sample, Summaries

T = TypeVar("T")

ASKS = 3
"""How often a reply that cannot be read is asked for, the first time included."""
SAID_CHARS = 200
"""Characters of a refusal, or of a reply that cannot be read, in the reason that shows it."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group's distillation, of which step."""

    branch_id: int
    step: int
    epoch: int
    slot: int = -1


@dataclass(frozen=True, slots=True)
class Teacher:
    """Settings that the stages of distillation have in common."""

    chat: Callable[[Scope], Chat]
    prompts: Mapping[str, Prompt]
    agent_objective: str | None
    learning_objective: str | None
    truth: bool
    """False: neither answer, reward nor critique reaches the model."""
    limit: int
    """The most lessons of one group."""
    run_seed: int
    instructions: str = ""
    """The agent's own, without experiences."""
    summaries: Summaries = "always"
    """Whether attempts are summarised before they are compared."""
    room: int = room_of(ASSUMED_CONTEXT, None)
    """UTF-8 bytes of the longest prompt that shows attempts."""
    reply: int | None = None
    """Configured limit of a reply, in tokens."""
    most_library_tokens: int | None = None
    """Most tokens of the library in a prompt; None for no limit."""
    fences: Fences = field(default_factory=Fences.with_new_key)
    """Fences of the run, for what students, judges and models before it wrote."""
    round: int = 0
    """Times that the step was paused since no comparison was of use; each has new seeds."""

    def open(self, at: GroupKey, stage: Stage, sample: Sample | None, attempt: int = -1) -> Chat:
        """Open the conversation of one stage about one sample (None: about the whole step)."""
        slot = at.slot if sample else -1
        address = Address(at.branch_id, at.step, slot, attempt, stage)
        return self.chat(Scope(address, self.run_seed, sample.sha if sample else "", at.epoch))

    def render(self, stage: Stage, **slots: object) -> list[Message]:
        """Render the messages of a stage.

        Raises:
            ConfigError: The prompt, a file of the user's, shows something that is not there.
        """
        try:
            return self.prompts[stage].render(
                self.fences,
                agent_objective=self.agent_objective,
                learning_objective=self.learning_objective,
                **slots,
            )
        except TemplateFault as e:
            raise ConfigError(
                f"the prompt {stage!r} cannot be filled: {e}", hint=STORED_HINT
            ) from e

    async def ask(
        self,
        chat: Chat,
        messages: list[Message],
        read: Callable[[Reply], T],
        *,
        keep: bool = False,
    ) -> T:
        """Return what `read` makes of the reply; one it cannot read is asked for again.

        Asked again, the model sees its reply (unless it was cut off), what is wrong with it and the
        form asked for, and has another seed. At temperature 0 it is the new messages that make a
        new answer likely: a temperature is part of the model's settings, which belong to the run
        and not to one ask. With `keep`, a readable reply of an earlier round is taken.

        Raises:
            ReplyError: It could not be read `ASKS` times.
            EndpointError: There was no reply.
        """
        for earlier in range(self.round if keep else 0):
            with suppress(ReplyError):
                return await self._ask(chat, messages, read, earlier)
        return await self._ask(chat, messages, read, self.round)

    async def _ask(
        self, chat: Chat, messages: list[Message], read: Callable[[Reply], T], round_: int
    ) -> T:
        for ask in range(ASKS):
            reply = await chat(messages, r=round_ * ASKS + ask)
            try:
                return read(reply)
            except ReplyError as e:
                if ask == ASKS - 1:
                    raise _for_user(e, reply) from None
                error = f"{e}\n\n{e.hint}" if e.hint else str(e)
                said = self.prompts["reask"].render(self.fences, error=error)
                messages = _again(messages, reply, said)
        raise AssertionError("unreachable")


def _for_user(error: ReplyError, reply: Reply) -> ReplyError:
    """Return the error of the last reply with the teacher's words, without advice to the teacher.

    A refusal or a filtered reply is named as such, not as the form that it did not keep.
    """
    match outcome_of(reply):
        case ("refused" | "content_filter") as kind, why:
            return ReplyError(f"{kind}: {brief(why or '', SAID_CHARS)}", kind=kind)
        case _:
            said = brief(reply.content, SAID_CHARS)
            return ReplyError(
                f"{error}; the teacher said: {said}" if said else str(error), kind=error.kind
            )


def _again(messages: list[Message], reply: Reply, said: list[Message]) -> list[Message]:
    """Return the conversation in which a reply is asked for again."""
    # One that was cut off is long, shows nothing, and would leave no room in the context.
    if reply.content.strip() and not reply.ended_early:
        return [*messages, reply.message, *said]
    # Endpoints refuse an empty assistant message, and some refuse two user messages in a row.
    *before, last = messages
    texts = [last["content"], *(message["content"] for message in said)]
    return [*before, {**last, "content": "\n\n".join(texts)}]
