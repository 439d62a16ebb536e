"""Rows for training: a run's settled attempts by group, and reasons for leaving others out."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, TypedDict, Unpack, get_args

from grpo_practice.core.calls import Message, one_conversation
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import Group, Rollout
from grpo_practice.export.rows import Counted
from grpo_practice.export.trl_rows import (
    EQUAL,
    Attempt,
    DataFormat,
    LeftOut,
    dpo_rows,
    plain_messages,
    sft_row,
    without_library,
)
from grpo_practice.rollout.groups.informative import status_of
from grpo_practice.run.requests.base import check_least
from grpo_practice.run.rollouts import played_run
from grpo_practice.store import Store, branches, rollouts
from grpo_practice.store.identity import WEIGHTS_SHA
from grpo_practice.store.queries import export_rows, runs
from grpo_practice.store.records import Branch, RunRow, StepRow


class DataOptions(TypedDict, total=False):
    """Keywords that select the training data."""

    without_library: bool
    """Whether prompts omit the experiences, so that the weights learn them."""
    include_eval: bool
    """Whether to include questions that an evaluation uses."""
    min_reward: float | None
    """Minimum reward of an attempt for `sft`; None is 1."""
    pairs: int | None
    """Maximum number of pairs per group for `dpo`; None is 1."""


@dataclass
class TrainingData:
    """The rows of a run, read once, with counts of attempts that were left out."""

    store: Store
    ref: str
    format: DataFormat
    without_library: bool
    include_eval: bool
    min_reward: float
    pairs: int
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    """Number of attempts in no row, by reason; a group's reason counts all of its attempts."""
    simulated: bool = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows by step, group and attempt.

        Raises:
            ConfigError: The run or step does not exist, or has no usable training data.
        """
        run, branch, only = played_run(self.store, self.ref)
        if run.kind == "eval" and not self.include_eval:
            raise ConfigError(
                f"{run.name} is an evaluation: weights trained on its questions can no longer be"
                " measured with them",
                hint="name a practice run, or add --include-eval",
            )
        self.simulated = run.simulated
        rows = Counted(self._rows(run, branch, only))
        yield from rows
        self.store.read(runs.get, run.name)  # raises if the run was deleted meanwhile
        if not rows.n:
            raise self._nothing(run)

    def _nothing(self, run: RunRow) -> ConfigError:
        reasons = ", ".join(f"{why}: {n}" for why, n in self.left_out.most_common())
        measured = "a question that an evaluation uses" in self.left_out
        return ConfigError(
            f"{run.name} has no usable training data"
            + (f": attempts were left out ({reasons})" if reasons else ""),
            hint="add --include-eval"
            if measured
            else f"grpo-practice rollouts list {quote(self.ref)}",
        )

    def _rows(self, run: RunRow, branch: Branch, only: int | None) -> Iterator[dict[str, Any]]:
        read = self.store.read
        measuring = set[int]() if self.include_eval else read(export_rows.evaluated_samples)
        numbers = read(export_rows.question_numbers, branch)
        place = -1 if only is None else only - 1
        while step := read(export_rows.next_step, branch, place):
            place = step.plan.step
            if only not in (None, place):
                break
            # Group by group: a run may have more transcripts than fit into memory.
            reader = _StepReader(self, run, branch, step)
            for slot, (sample, _) in enumerate(step.plan.slots):
                if sample in measuring:
                    self.left_out["a question that an evaluation uses"] += step.attempts(slot)
                else:
                    yield from reader.rows(slot, numbers.get(sample))


def training_data(
    store: Store, ref: str, format: DataFormat, **options: Unpack[DataOptions]
) -> TrainingData:
    """Return the rows of a run for a trainer; nothing is read yet.

    Raises:
        ConfigError: The format does not exist, or a number is out of range.
    """
    if format not in get_args(DataFormat):
        raise ConfigError(f"there is no training data format {format!r}", hint="choose sft or dpo")
    least, pairs = options.get("min_reward"), options.get("pairs")
    if (least if format == "dpo" else pairs) is not None:
        name, other = ("min_reward", "sft") if format == "dpo" else ("pairs", "dpo")
        raise ConfigError(f"{name} works only with {other}", hint=f"remove it, or choose {other}")
    check_least("pairs", pairs, 1)
    if least is not None and not 0 <= least <= 1:
        raise ConfigError(f"min_reward is {least}, but rewards range from 0 to 1")
    return TrainingData(
        store,
        ref,
        format,
        options.get("without_library", False),
        options.get("include_eval", False),
        1.0 if least is None else least,
        pairs or 1,
    )


class _StepReader:
    """Reader of the attempts of one step."""

    def __init__(self, data: TrainingData, run: RunRow, branch: Branch, step: StepRow) -> None:
        self._data, self._run, self._branch, self._step = data, run, branch, step
        self._held_by = step.played_by or step.branch_id
        self._lenders = data.store.read(branches.reuses, self._held_by)
        self._of_weights = run.kind == "train" or WEIGHTS_SHA in branch.identity
        """Whether answers may be sampled from weights, without a stored call."""

    def rows(self, slot: int, number: int | None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a group."""
        data, read = self._data, self._data.store.read
        stored = read(rollouts.stored, self._branch, self._step, transcripts=False, slot=slot)
        played = [rollout for _, (_, rollout) in sorted(stored.items())]
        systems = read(rollouts.system_prompts, self._step, slot)
        if data.format == "dpo" and (why := self._no_pairs(slot, played)):
            data.left_out[why] += len(played)
            return
        usable = list[Attempt]()
        for rollout in played:
            one = self._attempt(rollout, systems.get(rollout.attempt, ""), number)
            if isinstance(one, Attempt):
                usable.append(one)
            else:
                data.left_out[one] += 1
        if data.format == "sft":
            yield from map(sft_row, usable)
            return
        pairs = dpo_rows(usable, data.pairs)
        if usable and not pairs:
            data.left_out["no better and worse attempt at the same prompt"] += len(usable)
        yield from pairs

    def _no_pairs(self, slot: int, played: list[Rollout]) -> LeftOut | None:
        """Return the reason why a group's rewards rule out pairs; None if they do not."""
        if not played:
            return None
        settled = len(played) == self._step.attempts(slot) and all(r.settled for r in played)
        if not settled and not self._step.closed:
            return "an unfinished group"
        group = Group(slot, played[0].sample, played)
        informative = status_of(group, truth=True) == "scored"
        return None if informative else "no better and worse attempt at the same prompt"

    def _attempt(self, rollout: Rollout, system: str, number: int | None) -> Attempt | LeftOut:
        """Return the attempt in a form for training, or the reason to leave it out."""
        data, sft = self._data, self._data.format == "sft"
        if rollout.reward is None:
            return "no reward"
        # A refusal or a failed call does not show how to work on the question.
        played = rollout.played
        whole = played.outcome == "ok" if sft else played.answered
        if not whole:
            return "no complete answer"
        if sft and rollout.reward < data.min_reward - EQUAL:
            return "a lower reward"
        at = (self._held_by, self._step.plan.step, rollout.slot, rollout.attempt)
        turns = data.store.read(rollouts.turns_of, at, self._lenders)
        if not turns and self._of_weights:
            said: list[Message] | None = _sampled(rollout, system)
        else:
            said = one_conversation(turns)
        if said is None:
            return "no single conversation"
        messages = plain_messages(said)
        if messages is None:
            return "a message whose content is not text"
        first = next(n for n, message in enumerate(messages) if message["role"] == "assistant")
        prompt, completion = messages[:first], messages[first:]
        if not (completion[-1]["content"].strip() or "tool_calls" in completion[-1]):
            return "no complete answer"
        bare = without_library(prompt, system) if data.without_library else prompt
        if bare is None:
            return "a paraphrase of the library"
        last = max((turn.call_id for turn in turns), default=None)
        tools = [] if last is None else data.store.read(export_rows.offered_tools, last)
        return Attempt(
            run=self._run.name,
            step=at[1],
            slot=rollout.slot,
            attempt=rollout.attempt,
            number=number,
            reward=rollout.reward,
            finished=played.outcome == "ok",
            simulated=self._run.simulated,
            prompt=bare,
            completion=completion,
            tools=tools,
        )


def _sampled(rollout: Rollout, system: str) -> list[Message]:
    """Return the conversation of an answer sampled from weights; see `train.checks.prompts_of`."""
    asked = [{"role": "system", "content": system}] if system else []
    return [
        *asked,
        {"role": "user", "content": rollout.sample.question},
        {"role": "assistant", "content": rollout.played.response},
    ]
