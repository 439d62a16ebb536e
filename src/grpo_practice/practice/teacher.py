"""The teacher: sends the requests of all distillation stages and retries unreadable replies."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from grpo_practice.core.calls import Address, Chat, Message, Reply, Scope
from grpo_practice.core.errors import ConfigError, ReplyError
from grpo_practice.core.fences import Fences
from grpo_practice.core.prompts import TemplateFault
from grpo_practice.core.prompts.files import STORED_HINT, Prompt
from grpo_practice.core.stages import Stage
from grpo_practice.core.text import brief
from grpo_practice.core.types import Sample, Summaries
from grpo_practice.practice.reading import ASSUMED_CONTEXT, room_of
from grpo_practice.rollout.agents.simple import outcome_of

T = TypeVar("T")

ASKS = 3
"""Maximum number of requests for a reply that cannot be parsed, including the first one."""
SAID_CHARS = 200
"""Number of characters of a refusal, or of an unreadable reply, that an error reason quotes."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The group, and its step, that a distillation belongs to."""

    branch_id: int
    step: int
    epoch: int
    slot: int = -1


@dataclass(frozen=True, slots=True)
class Teacher:
    """Settings shared by the stages of distillation."""

    chat: Callable[[Scope], Chat]
    prompts: Mapping[str, Prompt]
    agent_objective: str | None
    learning_objective: str | None
    truth: bool
    """Whether the model may see the ground truth: answer, reward and critique."""
    limit: int
    """Maximum number of lessons per group."""
    run_seed: int
    instructions: str = ""
    """The agent's own instructions, without experiences."""
    summaries: Summaries = "always"
    """When attempts are summarised before they are compared."""
    room: int = room_of(ASSUMED_CONTEXT, None)
    """Maximum size in UTF-8 bytes of a prompt that shows attempts."""
    reply: int | None = None
    """Configured limit of a reply, in tokens."""
    most_library_tokens: int | None = None
    """Maximum number of tokens of the library in a prompt; None for no limit."""
    fences: Fences = field(default_factory=Fences.with_new_key)
    """Fences of the run, around text written by students, judges and earlier models."""
    round: int = 0
    """Number of times the step was paused for useless comparisons; each round uses new seeds."""

    def open(self, at: GroupKey, stage: Stage, sample: Sample | None, attempt: int = -1) -> Chat:
        """Open the conversation of one stage about a sample; None means the whole step."""
        slot = at.slot if sample else -1
        address = Address(at.branch_id, at.step, slot, attempt, stage)
        return self.chat(Scope(address, self.run_seed, sample.sha if sample else "", at.epoch))

    def render(self, stage: Stage, **values: object) -> list[Message]:
        """Render the messages of a stage.

        Raises:
            ConfigError: The user's prompt file refers to a value that does not exist.
        """
        try:
            return self.prompts[stage].render(
                self.fences,
                agent_objective=self.agent_objective,
                learning_objective=self.learning_objective,
                **values,
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
        """Request a reply and parse it with `read`; repeat the request if parsing fails.

        A repeated request contains the previous reply (unless it was cut off), the problem and the
        requested form, and has a new seed. At temperature 0, only the added messages make a
        different reply likely: the temperature is one of the model's settings, which are fixed for
        the run. With `keep`, a readable reply from an earlier round is reused.

        Raises:
            ReplyError: None of `ASKS` replies could be parsed.
            EndpointError: The endpoint did not reply.
        """
        for earlier in range(self.round if keep else 0):
            with suppress(ReplyError):
                return await self._ask(chat, messages, read, earlier)
        return await self._ask(chat, messages, read, self.round)

    async def _ask(
        self, chat: Chat, messages: list[Message], read: Callable[[Reply], T], round_: int
    ) -> T:
        for ask in range(ASKS):
            # Never use the same `r` twice, because the ledger would return the stored, unreadable
            # reply.
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
    """Rewrite the error of the last reply for the user, quoting the teacher's words.

    Advice to the teacher is dropped. A refusal or a filtered reply is reported as such, not as a
    reply in the wrong form.
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
    """Return the conversation that requests a reply again."""
    # A reply that was cut off is long and unhelpful, and would leave no room in the context.
    if reply.content.strip() and not reply.ended_early:
        return [*messages, reply.message, *said]
    # Endpoints reject an empty assistant message, and some reject two user messages in a row, so
    # the complaint is appended to the last message.
    *before, last = messages
    texts = [last["content"], *(message["content"] for message in said)]
    return [*before, {**last, "content": "\n\n".join(texts)}]
