"""Rollouts of a stored run: as a list, with transcripts one at a time, or as rows page by page."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.practice.transcript import sections
from grpo_practice.reports.rollout_report import (
    Flip,
    RolloutReport,
    RolloutsReport,
    TranscriptsReport,
    is_right,
)
from grpo_practice.run.library_refs import run_and_step
from grpo_practice.store import Store, branches, datasets, rollouts, steps
from grpo_practice.store.queries import export_rows, rollout_list, runs
from grpo_practice.store.queries.export_rows import ExportRow
from grpo_practice.store.queries.group_operations import teacher_calls
from grpo_practice.store.queries.rollout_list import FIRST, RolloutRow, Wanted, rollout_page
from grpo_practice.store.records import Branch, RunRow, StepRow
from grpo_practice.store.run_names import eval_name, questions_of

SEARCHED = 2_000
"""Maximum number of rollouts to search for played questions, if the requested one was not."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A person's selection of rollouts of a run."""

    run: str
    """`RUN[@BRANCH][:STEP]`."""
    step: int | None = None
    question: int | None = None
    """Number of the question in the run's dataset, starting at 1."""
    failed: bool = False
    """Whether to select only rollouts without a reward or with a reward below 1."""
    flipped: bool = False
    """Whether to select only questions answered correctly in only one of two plays."""
    against: str | None = None
    """Run to compare with, for flips; None selects the run found by `_baseline`."""

    @property
    def filters(self) -> str:
        """Selection options, as typed."""
        parts = [f"--question {self.question}"] if self.question is not None else []
        parts += ["--failed"] if self.failed else []
        parts += ["--flipped"] if self.flipped and self.against is None else []
        parts += [f"--against {shlex.quote(self.against)}"] if self.against is not None else []
        return "".join(f" {part}" for part in parts)


@dataclass(frozen=True, slots=True)
class Found:
    """A selection with its names resolved in the database."""

    run: RunRow
    branch: Branch
    wanted: Wanted
    flips: dict[int, Flip] | None = None
    compared: str | None = None
    """Name of the play with which flips are compared."""


def rollout_report(store: Store, choice: Choice, most: int) -> RolloutsReport:
    """Return the list of the first selected rollouts, without reading transcripts."""
    found = _find(store, choice)
    branch, wanted = found.branch, found.wanted
    rows = store.read(rollout_page, branch, FIRST, most, wanted)
    played = list[RolloutRow]()
    if choice.question is not None and not rows:
        step = Wanted(wanted.step)
        played = store.read(rollout_page, branch, FIRST, SEARCHED, step)
    return RolloutsReport(
        run=found.run.name,
        step=wanted.step,
        rollouts=rows,
        matching=store.read(rollout_list.count_wanted, branch, wanted),
        all=store.read(rollout_list.count_wanted, branch, Wanted(wanted.step)),
        filters=choice.filters,
        flips=found.flips,
        compared=found.compared,
        questions_played=sorted({row.number for row in played if row.number is not None}),
    )


def transcripts_report(store: Store, choice: Choice, most: int) -> TranscriptsReport:
    """Return the rollouts of the first selected groups with their complete transcripts.

    Raises: The same errors as `rollouts_of`.
    """
    listed = rollout_report(store, choice, 1)
    shown = [*rollouts_of(store, choice, most)]
    _, branch, _ = played_run(store, choice.run, choice.step)
    groups = dict.fromkeys((report.step, report.rollout.slot) for report in shown)
    asked = [call for group in groups for call in store.read(teacher_calls, branch, *group)]
    return TranscriptsReport(listed, shown, asked)


def rollouts_of(
    store: Store, choice: Choice | str, most: int | None = None
) -> Iterator[RolloutReport]:
    """Yield the rollouts of a run by step, group and attempt; a name alone selects all of them.

    Raises:
        ConfigError: The run does not exist, or no longer exists.
        StoreError: The run was deleted while it was read.
    """
    choice = Choice(choice) if isinstance(choice, str) else choice
    found = _find(store, choice)
    branch, wanted = found.branch, found.wanted
    # Read only the places up front, because an open read transaction would keep the write-ahead log
    # growing while the caller looks at one transcript after the other.
    groups = store.read(lambda db: [*rollout_list.wanted_groups(db, branch, wanted, most)])
    reader = RolloutReader(store, branch)
    for step, slot, attempts in groups:
        yield from (one for one in reader.group(step, slot) if one.rollout.attempt in attempts)


class RolloutReader:
    """Reader of the complete rollouts on a branch and its ancestors."""

    def __init__(self, store: Store, branch: Branch) -> None:
        self._store, self._branch = store, branch
        self._step: StepRow | None = None
        self._numbers = dict[int, int]()

    def group(self, step: int, slot: int, attempt: int | None = None) -> list[RolloutReport]:
        """Return the stored rollouts of a group, or only one attempt.

        Raises:
            StoreError: The run was deleted while it was read.
        """
        read = self._store.read
        # Groups are read in order of their steps, so it is enough to keep one step and its question
        # numbers.
        if self._step is None or self._step.plan.step != step:
            self._step = read(steps.one_on_line, self._branch, step)
            self._numbers = {}
        row = self._step
        if row is None or not 0 <= slot < len(row.plan.slots):
            return []
        stored = read(
            rollouts.stored, self._branch, row, transcripts=True, slot=slot, attempt=attempt
        )
        systems = read(rollouts.system_prompts, row, slot)
        # Check after reading: a run deleted in between looks like one without rollouts.
        read(runs.get, self._branch.run)
        sample, planned = row.plan.slots[slot]
        if stored and not self._numbers:
            asked = {one for one, _ in row.plan.slots}
            self._numbers = read(rollout_list.numbers, row.branch_id, asked)
        return [
            RolloutReport(
                self._branch.run,
                step,
                planned,
                rollout,
                [(section.heading, section.body) for section in sections(rollout.played)],
                systems.get(number, ""),
                self._numbers.get(sample),
            )
            for (_, number), (_, rollout) in sorted(stored.items())
        ]


def played_run(
    store: Store, ref: str, step: int | None = None
) -> tuple[RunRow, Branch, int | None]:
    """Return the run of a reference `RUN[@BRANCH][:STEP]`, its branch, and the only step, if any.

    `step` is used if the reference names no step.

    Raises:
        ConfigError: The run, branch or step does not exist, or the run has no rollouts.
    """
    run, branch, named = run_and_step(store, ref)
    if run.kind == "recorded":
        raise ConfigError(
            f"{run.name} is a recorded run, so it has no rollouts", hint=questions_of(run.name)
        )
    step = step if named is None else named
    planned = [row.plan.step for row in store.read(steps.on_line, branch)]
    if step is not None and step not in planned:
        raise ConfigError(
            f"{run.name} has no step {step}",
            hint=f"its steps are 0 to {planned[-1]}" if planned else "it has planned none yet",
        )
    return run, branch, step


def _find(store: Store, choice: Choice) -> Found:
    run, branch, step = played_run(store, choice.run, choice.step)
    samples, flips, compared = None, None, None
    if choice.flipped or choice.against is not None:
        flips, compared = _flips(store, run, branch, choice.against)
        samples = set(flips)
    if choice.question is not None:
        dataset, number = store.read(datasets.by_id, branch.dataset_id), choice.question
        known = 1 <= number <= dataset.n  # first, because SQLite rejects huge integers
        sample = store.read(rollout_list.sample_numbered, dataset.id, number) if known else None
        if sample is None:
            raise ConfigError(
                f"{dataset.name} has no question {number}",
                hint=f"its questions are 1 to {dataset.n}",
            )
        samples = {sample} if samples is None else samples & {sample}
        flips = flips and {one: flip for one, flip in flips.items() if one in samples}
    return Found(run, branch, Wanted(step, samples, choice.failed), flips, compared)


def _flips(
    store: Store, run: RunRow, branch: Branch, against: str | None
) -> tuple[dict[int, Flip], str]:
    """Return sample → change of its verdict, and the name of the play that it is compared with.

    Raises:
        ConfigError: There is no run to compare with, or the runs share no question.
    """
    now = store.read(rollout_list.question_means, branch)
    if against is None and run.learns:
        # One mean for each time that the run played the question, oldest first.
        pairs = {sample: Flip(means[0], means[-1]) for sample, means in now.items()}
        return _turned(pairs), "the first time that the run played the question"
    other, other_branch = _baseline(store, run, against)
    before = store.read(rollout_list.question_means, other_branch)
    pairs = {s: Flip(before[s][-1], now[s][-1]) for s in now.keys() & before.keys()}
    if not pairs and now:
        raise ConfigError(
            f"{run.name} and {other.name} have no scored question in common",
            hint="name another run from `grpo-practice runs list`: --against RUN",
        )
    return _turned(pairs), other.name


def _turned(pairs: dict[int, Flip]) -> dict[int, Flip]:
    return {s: flip for s, flip in pairs.items() if is_right(flip.was) != flip.right}


def _baseline(store: Store, run: RunRow, against: str | None) -> tuple[RunRow, Branch]:
    """Return the run to compare with.

    Unless a run is named, this is the evaluation whose rollouts were rejudged, or else the
    evaluation of the agent without experiences.

    Raises:
        ConfigError: There is no such run.
    """
    if against is not None:
        other, branch, step = run_and_step(store, against)
        if step is not None or other.kind == "recorded":
            raise ConfigError(
                f"--against {against}: not a run with rollouts",
                hint="grpo-practice runs list",
            )
        return other, branch
    rejudged = run.parent_run if run.purpose == "rejudge" else None
    name = rejudged or eval_name(run.exp_id)
    found = store.read(runs.find, name) if name != run.name else None
    if found is None or found.head_branch is None:
        why = (
            "is the baseline that others are compared with"
            if name == run.name
            else f"has no run to be compared with, because there is no {name}"
        )
        raise ConfigError(
            f"{run.name} {why}",
            hint="name a run from `grpo-practice runs list` to compare it with: --against RUN",
        )
    return found, store.read(branches.load, found.head_branch)


PAGE = 100
"""Number of rollouts in memory at a time, because a single answer may take megabytes."""


def run_rows(store: Store, ref: str) -> Iterator[ExportRow]:
    """Yield the rollouts of `RUN[@BRANCH][:STEP]`, by step, group and attempt.

    No read transaction stays open between pages, because it would keep the write-ahead log of a
    running practice from shrinking.

    Raises:
        ConfigError: The run or step does not exist, or none of its rollouts has been played yet.
    """
    run, branch, step = played_run(store, ref)
    numbers = store.read(export_rows.question_numbers, branch)
    place = FIRST
    while page := store.read(
        export_rows.export_page, branch, place, PAGE, numbers=numbers, step=step
    ):
        yield from page
        place = page[-1].place
    # Check after reading: a run deleted in between looks like one without rollouts.
    store.read(runs.get, run.name)
    if place == FIRST:
        raise ConfigError(
            f"{ref} has no rollouts yet", hint=f"grpo-practice runs show {quote(run.name)}"
        )
