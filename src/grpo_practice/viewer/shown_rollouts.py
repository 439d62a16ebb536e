"""Selection of the rollouts that a report shows in full."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from grpo_practice.reports.rollout_report import RolloutReport, is_right
from grpo_practice.run.rollouts import RolloutReader
from grpo_practice.store import Store
from grpo_practice.store.queries import pages, rollout_list, runs
from grpo_practice.store.queries.pages import GroupLine
from grpo_practice.store.queries.rollout_list import FIRST, Place, RolloutRow, Wanted
from grpo_practice.store.records import Branch
from grpo_practice.viewer.story import Story

MOST = 300
"""Maximum number of rollouts with full transcripts in a report."""
PAIRS = 12
"""Maximum number of groups whose best and worst attempts are shown side by side."""
FLIPS = 40
"""Maximum number of flipped questions listed."""
FAILED = 40
"""Maximum number of rollouts without an answer listed."""

Why = Literal["best", "worst", "alike"]
"""Rank of an attempt in its group; `alike` if all rewards are equal."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A rollout shown in the report, with its anchor."""

    anchor: str
    report: RolloutReport

    @property
    def label(self) -> str:
        """Run, step, question and attempt in words."""
        of = self.report
        question = f"question {of.number}" if of.number else f"group {of.rollout.slot}"
        return f"{of.run}, step {of.step}, {question}, attempt {of.rollout.attempt + 1}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Best and worst attempt of a group, with the lessons learnt from them."""

    step: int
    slot: int
    number: int | None
    question: str
    best: Shown
    worst: Shown
    lessons: Sequence[str]
    experiences: Sequence[str]
    """Ids of the experiences that came from the group."""


@dataclass(frozen=True, slots=True)
class FlippedQuestion:
    """A question answered correctly in one run and incorrectly in the other."""

    number: int | None
    question: str
    was: float
    now: float
    before: Shown | None
    """Baseline attempt to show: the best one if the baseline was right, the worst one if it was
    wrong.
    """
    after: Shown | None


@dataclass(frozen=True, slots=True)
class ShownRollouts:
    """All rollouts shown in a report."""

    pairs: Sequence[Pair]
    flips: Sequence[FlippedQuestion]
    more_flips: int
    failed: Sequence[Shown]
    rollouts: Sequence[Shown]
    """Each rollout once, ordered by run, step, group and attempt."""
    questions: dict[int, Sequence[tuple[Why, Shown]]] = field(default_factory=dict)
    """Sample → best and worst attempt of its last visit."""


def choose(store: Store, story: Story, prefix: str) -> ShownRollouts:
    """Return the rollouts that a report of a run shows; anchors begin with `prefix`."""
    # The order below sets priorities, because the shelf has a limit.
    shelf = _Shelf(store, prefix)
    # Stop at the limit: each pair that is examined uses up room on the shelf.
    pairs = [*islice(_pairs(store, story, shelf), PAIRS)]
    flips, more = _flips(story, shelf)
    failed = [*_failed(store, story, shelf)]
    questions = dict[int, Sequence[tuple[Why, Shown]]]()
    for question in story.questions:
        place = question.places[-1] if question.places else None
        if place is not None:
            found = shelf.ends(story.name, *place)
            if found:
                questions[question.sample] = found
    return ShownRollouts(pairs, flips, more, failed, shelf.all, questions)


class _Shelf:
    """The rollouts chosen so far, at most `MOST`."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._runs = dict[str, tuple[Branch, RolloutReader, dict[int, tuple[int, int]]]]()
        self._chosen = dict[tuple[str, Place], Shown]()

    @property
    def all(self) -> list[Shown]:
        """All chosen rollouts, in order."""
        return [self._chosen[key] for key in sorted(self._chosen)]

    def rows(self, run: str, step: int, slot: int) -> list[RolloutRow]:
        """Return the rollouts of a group, without transcripts."""
        branch, _, _ = self._run(run)
        found, after = list[RolloutRow](), Place(step, slot, -1)
        for row in self._store.read(rollout_list.rollout_page, branch, after, 64, Wanted(step)):
            if row.slot != slot:
                break
            found.append(row)
        return found

    def ends(self, run: str, step: int, slot: int) -> list[tuple[Why, Shown]]:
        """Return the best and the worst attempt of a group; only one if all rewards are equal."""
        scored = [row for row in self.rows(run, step, slot) if row.reward is not None]
        if not scored:
            return []
        # Ties are broken by attempt, so that a report is reproducible.
        best = max(scored, key=lambda row: (row.reward or 0.0, -row.attempt))
        worst = min(scored, key=lambda row: (row.reward or 0.0, -row.attempt))
        wanted: list[tuple[Why, RolloutRow]] = [("best", best), ("worst", worst)]
        if best.reward == worst.reward:
            wanted = [("alike", best)]
        found = [(why, self.put(run, row)) for why, row in wanted]
        return [(why, shown) for why, shown in found if shown is not None]

    def last_play(self, run: str, sample: int) -> tuple[int, int] | None:
        """Return step and slot of a question's last visit in a run."""
        return self._run(run)[2].get(sample)

    def put(self, run: str, row: RolloutRow) -> Shown | None:
        """Choose a rollout; return None if there is no room left."""
        place = Place(row.step, row.slot, row.attempt)
        if (run, place) in self._chosen:
            return self._chosen[run, place]
        if len(self._chosen) >= MOST:
            return None
        found = self._run(run)[1].group(row.step, row.slot, row.attempt)
        if not found:
            return None
        # Run names may contain characters that an anchor may not.
        number = [*self._runs].index(run)
        anchor = f"{self._prefix}r{number}-{row.step}-{row.slot}-{row.attempt}"
        self._chosen[run, place] = Shown(anchor, found[0])
        return self._chosen[run, place]

    def _run(self, name: str) -> tuple[Branch, RolloutReader, dict[int, tuple[int, int]]]:
        if name not in self._runs:
            branch = self._store.read(runs.newest_branch, name)
            assert branch is not None, "a run with rollouts has a branch"
            last = self._store.read(pages.last_plays, branch)
            self._runs[name] = (branch, RolloutReader(self._store, branch), last)
        return self._runs[name]


def _pairs(store: Store, story: Story, shelf: _Shelf) -> Iterator[Pair]:
    """Yield the groups behind experiences of the last library, then other groups that taught."""
    behind = dict[tuple[int, int], list[str]]()
    here = {e.id for e in story.library.experiences}
    for life in story.lives:
        if life.ended is None and life.id in here:
            for change in life.changes:
                for place in change.groups:
                    behind.setdefault(place, []).append(life.id)
    if story.report.run.kind == "train":
        taught = _taught_last(store, story)
    else:
        groups = store.read(pages.group_page, story.branch, (-1, -1), 1_000)
        taught = [group for group in groups if group.status == "distilled"]
        taught.sort(key=lambda group: (group.step, group.slot) not in behind)
    for group in taught:
        found = shelf.ends(story.name, group.step, group.slot)
        if len(found) < 2:
            continue
        (_, best), (_, worst) = found
        yield Pair(
            group.step,
            group.slot,
            group.number,
            group.question,
            best,
            worst,
            store.read(pages.lessons_of, story.branch, group.step, group.slot),
            [*dict.fromkeys(behind.get((group.step, group.slot), ()))],
        )


def _taught_last(store: Store, story: Story) -> list[GroupLine]:
    """Return groups that weights were trained on, last steps first."""
    found = list[GroupLine]()
    for row in reversed(story.report.steps):
        step = row.plan.step
        found += store.read(
            lambda db, step=step: pages.group_page(
                db, story.branch, (step, -1), PAIRS, step=step, status="scored"
            )
        )
        if len(found) >= PAIRS:
            break
    return found


def _flips(story: Story, shelf: _Shelf) -> tuple[list[FlippedQuestion], int]:
    """Return the flipped questions, and the number of further ones."""
    if story.comparison is None:
        return [], 0
    contrast = story.comparison.contrasts[0]
    flipped = [q for q in contrast.moved if is_right(q.a) != is_right(q.b)]
    texts = story.comparison.texts
    numbers = {question.sample: question.number for question in story.questions}
    found = list[FlippedQuestion]()
    for question in flipped[:FLIPS]:
        sample = int(question.key)
        ends = list[Shown | None]()
        for run, mean in ((contrast.baseline, question.a), (contrast.arm, question.b)):
            place = shelf.last_play(run, sample)
            there = shelf.ends(run, *place) if place else []
            ends.append((there[0] if is_right(mean) else there[-1])[1] if there else None)
        number = next((end.report.number for end in ends if end), numbers.get(sample))
        text = texts.get(sample, "")
        found.append(FlippedQuestion(number, text, question.a, question.b, ends[0], ends[1]))
    return found, len(flipped) - len(found)


def _failed(store: Store, story: Story, shelf: _Shelf) -> Iterator[Shown]:
    """Yield the first rollouts that ended without an answer."""
    unanswered = Wanted(unanswered=True)
    rows = store.read(rollout_list.rollout_page, story.branch, FIRST, FAILED, unanswered)
    for row in rows:
        shown = shelf.put(story.name, row)
        if shown is not None:
            yield shown
