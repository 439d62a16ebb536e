"""The viewer's lists of rollouts, questions, failed requests and texts found, in pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_practice.reports.rollout_report import is_right
from grpo_practice.reports.run_list import runs_report
from grpo_practice.run.library_refs import run_and_step
from grpo_practice.store import Store
from grpo_practice.store.queries import arms, pages, rollout_list, runs, search
from grpo_practice.store.queries.pages import Visit
from grpo_practice.store.queries.rollout_list import FIRST, SORTS, Place, Sort, Wanted
from grpo_practice.store.queries.search import AnswerHit
from grpo_practice.store.records import Branch, RunRow
from grpo_practice.store.run_names import eval_name
from grpo_practice.viewer import charts
from grpo_practice.viewer.address import Page, Query
from grpo_practice.viewer.group_views import ROWS, place_of, place_text

VISITS = 12
"""Maximum number of visits of a question shown as columns; the last ones are kept."""


def rollouts_page(store: Store, query: Query) -> Page:
    """Return a page of rollouts, in order of place or of another key."""
    run, branch, _ = run_and_step(store, query.text("run"))
    step, only = query.optional_number("step"), query.choice("only", "all", "failed", "wrong")
    sort: Literal[Sort, "place"] = query.choice("sort", "place", *SORTS)
    wanted = Wanted(step, failed=only == "wrong", unanswered=only == "failed")
    if sort == "place":
        rows = store.read(rollout_list.rollout_page, branch, place_of(query), ROWS + 1, wanted)
        more = place_text(rows[ROWS - 1]) if len(rows) > ROWS else None
    else:
        after = query.key("after")
        keys = store.read(rollout_list.sorted_keys, branch, wanted, sort, after, ROWS + 1)
        found = (
            store.read(rollout_list.one_rollout, branch, Place(*key[1:])) for key in keys[:ROWS]
        )
        rows = [row for row in found if row is not None]
        more = None
        if len(keys) > ROWS:
            value, *place = keys[ROWS - 1]
            # repr() keeps every digit of the value, so that the next page begins exactly there.
            more = f"{value!r}:{place_text(Place(*place))}"
    values = {
        "run": run,
        "ref": query.text("run"),
        "step": step,
        "only": only,
        "sort": sort,
        "sorts": ["place", *SORTS],
        "begun": query.optional("after") is not None,
        "rows": rows[:ROWS],
        "more": more,
    }
    return Page("view/rollouts.html", values)


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A question with its rewards at each visit."""

    sample: int
    number: int | None
    visits: Sequence[Visit]
    """Visits shown, oldest first."""
    was: float | None
    now: float | None

    @property
    def change(self) -> float | None:
        """Change from the earlier to the current reward; None if either is unknown."""
        return None if self.was is None or self.now is None else self.now - self.was

    @property
    def flipped(self) -> bool:
        """True if the question is now answered correctly and was not before, or the reverse."""
        if self.was is None or self.now is None:
            return False
        return is_right(self.was) != is_right(self.now)

    @property
    def uniform(self) -> bool:
        """True if all attempts of its last visit had the same reward, 0 or 1."""
        return self.now is not None and min(self.now, 1 - self.now) < 1e-9


def questions_page(store: Store, query: Query) -> Page:
    """Return the rewards of a run's questions, by visit or compared with another run."""
    run, branch, _ = run_and_step(store, query.text("run"))
    only = query.choice("only", "all", "flipped", "better", "worse", "uniform")
    sort = query.choice("sort", "change", "number", "reward")
    before, against = _before(store, run, query.optional("against"))
    lines = _lines(store, branch, before)
    sample = query.optional_number("sample")
    lines = [line for line in lines if _passes(line, only) and sample in (None, line.sample)]
    lines.sort(key=_ORDERS[sort])
    shown, links = query.paged(lines, ROWS)
    values = {
        "run": run,
        "ref": query.text("run"),
        "only": only,
        "sort": sort,
        "against": against,
        "lines": shown,
        "columns": max((len(line.visits) for line in shown), default=0),
        "texts": store.read(arms.question_texts, [line.sample for line in shown]),
        **links,
        "shade": charts.shade,
    }
    return Page("view/questions.html", values)


def _before(
    store: Store, run: RunRow, named: str | None
) -> tuple[dict[int, float] | None, str | None]:
    """Return sample → mean in the run to compare with, and the name of that run.

    Return None for both if a run that learns is not compared with a named run: then the first
    visits are compared with the last ones.
    """
    if named is None and run.learns:
        return None, None
    baseline = store.read(runs.named, named).name if named else eval_name(run.exp_id)
    other = store.read(runs.find, baseline)
    if other is None or other.name == run.name or other.head_branch is None:
        return None, None
    _, branch, _ = run_and_step(store, baseline)
    visits = store.read(pages.question_visits, branch)
    return {visit.sample_id: visit.mean for visit in visits if visit.mean is not None}, baseline


def _lines(store: Store, branch: Branch, before: dict[int, float] | None) -> list[QuestionLine]:
    by_sample = dict[int, list[Visit]]()
    for visit in store.read(pages.question_visits, branch):
        by_sample.setdefault(visit.sample_id, []).append(visit)
    numbers = store.read(rollout_list.numbers, branch.id, by_sample)
    found = list[QuestionLine]()
    for sample, visits in by_sample.items():
        means = [visit.mean for visit in visits if visit.mean is not None]
        first = means[0] if len(means) > 1 else None
        was = before.get(sample) if before is not None else first
        now = means[-1] if means else None
        found.append(QuestionLine(sample, numbers.get(sample), visits[-VISITS:], was, now))
    return found


def _passes(line: QuestionLine, only: str) -> bool:
    change = line.change or 0.0
    return {
        "all": True,
        "flipped": line.flipped,
        "better": change > 1e-9,
        "worse": change < -1e-9,
        "uniform": line.uniform,
    }[only]


_ORDERS = {
    "change": lambda line: (-abs(line.change or 0.0), line.number or 0, line.sample),
    "number": lambda line: (line.number or 0, line.sample),
    # 2 is above every reward: unknown ones come last.
    "reward": lambda line: (2.0 if line.now is None else line.now, line.number or 0, line.sample),
}


def failures_page(store: Store, query: Query) -> Page:
    """Return a page of a run's requests that got no usable answer."""
    run, _, _ = run_and_step(store, query.text("run"))
    given = query.numbers("after", 3)
    after = (given[0], given[1], given[2]) if given else None
    rows = store.read(pages.failure_page, run.name, after, ROWS + 1)
    last = rows[ROWS - 1] if len(rows) > ROWS else None
    values = {
        "run": run,
        "ref": query.text("run"),
        "rows": rows[:ROWS],
        "total": store.read(pages.count_failures, run.name),
        "more": f"{last.branch_id}.{last.step}.{last.failure_id}" if last else None,
    }
    return Page("view/failures.html", values)


HITS = 40
"""Hits of each kind per page."""


def search_page(store: Store, query: Query) -> Page:
    """Return the texts that contain all words, in one run or in all runs."""
    text, named = query.optional("q") or "", query.optional("run")
    words = search.words_of(text)
    run = branch = None
    if named is not None:
        run, branch, _ = run_and_step(store, named)
    after = query.numbers("after", 4)
    found = list[AnswerHit]()
    if words:
        last = (after[0], Place(*after[1:])) if after else (-1, FIRST)
        found = store.read(search.find_answers, branch, words, last, HITS + 1)
    last_hit = found[HITS - 1] if len(found) > HITS else None
    # Only answers have further pages: experiences and questions are on the first one.
    first = bool(words) and after is None
    dataset = branch.dataset_id if branch is not None else None
    name = run.name if run else None
    values = {
        "text": text,
        "words": words,
        "run": run,
        "ref": named,
        "names": [one.name for one in runs_report(store).runs],
        "experiences": store.read(search.find_experiences, words, name, HITS) if first else [],
        "questions": store.read(search.find_questions, words, dataset, HITS) if first else [],
        "answers": found[:HITS],
        "more": f"{last_hit.branch_id}.{place_text(last_hit.place)}" if last_hit else None,
        "begun": bool(words) and not first,
    }
    return Page("view/search.html", values)
