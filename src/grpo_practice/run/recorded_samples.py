"""Conversations of a recorded run, converted to samples for practice."""

from shlex import quote
from typing import Any

from grpo_practice.core.calls import Message, Reply
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Sample
from grpo_practice.data.read import ReadNotes
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.run.served_agent import ServedAgent
from grpo_practice.store import Store, branches, recorded_runs
from grpo_practice.store.queries import runs
from grpo_practice.store.recorded_runs import SYSTEM, Conversation


def stage_run(staged: StagedSamples, store: Store, run: str, *, dedup: bool) -> ReadNotes:
    """Add one sample for each conversation of a recorded run, in the order they began.

    The question is the text of the first user message. There is no answer, because the right answer
    is unknown. The sample's meta contains the whole conversation and its last reply. With `dedup`,
    only the first of several equal questions is kept, ignoring differences in spaces.

    Raises:
        ConfigError: The run is not a recorded run.
        DataError: The run contains no question.
    """
    row = store.read(runs.get, run)
    if row.kind != "recorded" or row.head_branch is None:
        raise ConfigError(
            f"{run} is a run of kind {row.kind}: its questions are already a dataset",
            hint="--from-run takes a run of `serve --record`; `data list` lists datasets",
        )
    branch = store.read(branches.load, row.head_branch)
    agent = ServedAgent(run, "", branch.prompts[SYSTEM])
    silent = 0
    for talk in store.each(recorded_runs.conversations, branch.id):
        sample = _sample(run, talk, agent)
        if sample is None:
            silent += 1
        else:
            staged.add(sample)
    if not staged:
        raise DataError(
            f"{run} contains no question: no answered request has a text by the user",
            hint=f"grpo-practice runs show {quote(run)}",
        )
    repeated = staged.leave_repeats_out() if dedup else sum(1 for _ in staged.repeats())
    return ReadNotes(_notes(len(staged), repeated, silent, dedup=dedup), silent)


def _notes(n: int, repeated: int, silent: int, *, dedup: bool) -> list[str]:
    notes = [
        f"{n} of its conversations: the question is the first user message, meta has the rest",
        "no answers: the agent's own last reply, in meta.response, was never scored",
    ]
    if repeated:
        left = "left out" if dedup else "kept (--dedup leaves them out)"
        notes.append(f"{repeated} with the question of an earlier one, {left}")
    if silent:
        notes.append(f"{silent} without a user's text left out")
    return notes


def _sample(run: str, talk: Conversation, agent: ServedAgent) -> Sample | None:
    """Return the conversation as a sample; None if it contains no text from the user."""
    messages = agent.theirs(talk.messages)
    texts = (_text(m) for m in messages if m.get("role") == "user")
    question = next((text for text in texts if text.strip()), None)
    if question is None:
        return None
    meta: dict[str, Any] = {"conversation": messages, "response": _text(messages[-1])}
    return Sample(question, source=run, meta=meta)


def _text(message: Message) -> str:
    return Reply(message).content
