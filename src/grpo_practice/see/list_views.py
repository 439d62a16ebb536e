"""Lists of the viewer: rollouts, questions and failed requests of a run, page by page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from grpo_practice.app.library_refs import run_and_step
from grpo_practice.errors import ConfigError
from grpo_practice.reports.rollout_report import is_right
from grpo_practice.see import charts
from grpo_practice.see.address import Page, Query
from grpo_practice.see.group_views import ROWS, place_of, place_text
from grpo_practice.store import Store
from grpo_practice.store.queries import arms, pages, rollout_list, runs
from grpo_practice.store.queries.pages import Place, Visit
from grpo_practice.store.queries.rollout_list import RolloutRow
from grpo_practice.store.records import Branch, RunRow
from grpo_practice.store.run_names import eval_name
from grpo_practice.store.sidecar_reads import Key, Wish, complete_file, sorted_page
from grpo_practice.store.sidecar_reads import place_of as place_of_key

LOOKED_THROUGH = 5_000
"""Rollouts that one page looks through for those that a rare filter wants."""
BATCH = 1_000
"""Rollouts that are read at once for it."""
SORTED = 5_000
"""Rollouts that a page sorts by itself: the first ones, where there are more."""
RIGHT = 1 - 1e-9
"""Reward from which an answer is right: a computed 1 may be a little less."""
VISITS = 12
"""Visits of a question that are columns: the last ones, where there are more."""


def rollouts_page(store: Store, query: Query) -> Page:
    """Return a page of rollouts: by place, or the first of them sorted by what they came to."""
    run, branch, _ = run_and_step(store, query.text("run"))
    step, only = query.optional_number("step"), query.choice("only", "all", "failed", "wrong")
    sort, first = query.choice("sort", "place", *_SORTS), query.number("from", 0)
    values = {
        "run": run,
        "ref": query.text("run"),
        "step": step,
        "only": only,
        "sort": sort,
        "sorts": ["place", *_SORTS],
        "begun": query.optional("after") is not None,
        "first": first,
        "next": None,
        "total": 0,
        "cut": False,
        "by_index": sort == "place",
    }
    if sort == "place":
        rows, last = _wanted(store, branch, place_of(query), only, step)
        return Page("view/rollouts.html", values | {"rows": rows, "more": _text(last)})
    if only != "failed" and step is None:
        keys = _sorted_keys(store, branch, query, only)
        if keys is not None:
            return Page("view/rollouts.html", values | keys)
    rows, last = _wanted(store, branch, pages.FIRST, only, step, most=SORTED)
    rows.sort(key=_SORTS[sort])
    more = first + ROWS if first + ROWS < len(rows) else None
    found = {"rows": rows[first : first + ROWS], "more": None, "total": len(rows)}
    return Page("view/rollouts.html", values | found | {"next": more, "cut": last is not None})


def _sorted_keys(store: Store, branch: Branch, query: Query, only: str) -> dict[str, object] | None:
    """Return a page of all rollouts in order; None while the second file is not made."""
    sort = query.choice("sort", *_SORTS)
    wish = Wish(
        "seconds" if sort == "time" else "tokens" if sort == "tokens" else "reward",
        descending=sort != "reward",
        below=RIGHT if only == "wrong" else None,
        after=query.key("after"),
    )
    keys: list[Key] | None = None
    with complete_file(store) as index:
        if index is not None:
            keys = sorted_page(index, branch, wish, ROWS + 1)
    if keys is None:
        return None
    rows = [store.read(pages.one_rollout, branch, place_of_key(key)) for key in keys[:ROWS]]
    last = _key_text(keys[ROWS - 1]) if len(keys) > ROWS else None
    return {"rows": [row for row in rows if row is not None], "more": last, "by_index": True}


def _key_text(key: Key) -> str:
    return f"{key[0]!r}:{place_text(place_of_key(key))}"


def _text(row: RolloutRow | None) -> str | None:
    return place_text(row) if row else None


_SORTS: Mapping[str, Callable[[RolloutRow], tuple[float, ...]]] = {
    "reward": lambda row: (-1.0 if row.reward is None else row.reward,),
    "tokens": lambda row: (-(row.tokens or 0),),
    "time": lambda row: (-row.seconds,),
}
"""Orders of rollouts: the lowest rewards, or the most tokens or seconds, first."""


def _wanted(
    store: Store, branch: Branch, after: Place, only: str, step: int | None, *, most: int = 0
) -> tuple[list[RolloutRow], RolloutRow | None]:
    """Return a page of rollouts, and the last one that was looked at where there may be more."""
    most = most or ROWS
    found, looked = list[RolloutRow](), 0
    # One more, to know whether there are more; a filter that the index has not reads ahead.
    n = BATCH if only == "wrong" else most + 1
    while True:
        read = partial(
            pages.rollout_page, branch=branch, after=after, n=n, step=step, failed=only == "failed"
        )
        rows = store.read(read)
        for row in rows:
            if len(found) == most:
                return found, found[-1]
            if only != "wrong" or row.reward is None or row.reward < RIGHT:
                found.append(row)
        if len(rows) < n:
            return found, None
        looked += n
        if looked >= LOOKED_THROUGH:
            return found, rows[-1]
        after = Place(rows[-1].step, rows[-1].slot, rows[-1].attempt)


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A question with its rewards each time that it was asked."""

    sample: int
    number: int | None
    visits: Sequence[Visit]
    """Visits that are shown, the oldest first."""
    was: float | None
    now: float | None

    @property
    def change(self) -> float | None:
        """Reward now less what it was; None where one is not known."""
        return None if self.was is None or self.now is None else self.now - self.was

    @property
    def flipped(self) -> bool:
        """True where it was right and is wrong, or the other way."""
        if self.was is None or self.now is None:
            return False
        return is_right(self.was) != is_right(self.now)

    @property
    def uniform(self) -> bool:
        """True where all attempts of its last visit had one reward, 0 or 1."""
        return self.now is not None and min(self.now, 1 - self.now) < 1e-9


def questions_page(store: Store, query: Query) -> Page:
    """Return the rewards of a run's questions, by visit, or against another run."""
    run, branch, _ = run_and_step(store, query.text("run"))
    only = query.choice("only", "all", "flipped", "better", "worse", "uniform")
    sort = query.choice("sort", "change", "number", "reward")
    before, against = _before(store, run, query.optional("against"))
    lines = _lines(store, branch, before)
    sample = query.optional_number("sample")
    lines = [line for line in lines if _passes(line, only) and sample in (None, line.sample)]
    lines.sort(key=_ORDERS[sort])
    first = query.number("from", 0)
    shown = lines[first : first + ROWS]
    values = {
        "run": run,
        "ref": query.text("run"),
        "only": only,
        "sort": sort,
        "against": against,
        "lines": shown,
        "columns": max((len(line.visits) for line in shown), default=0),
        "texts": store.read(arms.question_texts, [line.sample for line in shown]),
        "total": len(lines),
        "first": first,
        "more": first + ROWS if first + ROWS < len(lines) else None,
        "shade": charts.shade,
    }
    return Page("view/questions.html", values)


def _before(
    store: Store, run: RunRow, named: str | None
) -> tuple[dict[int, float] | None, str | None]:
    """Return sample → its mean in the run that this one is compared with, and that run's name.

    Neither for a run that learns, whose first visits are what its last ones are compared with,
    unless another run is named.
    """
    if named is None and run.learns:
        return None, None
    baseline = named or eval_name(run.exp_id)
    other = store.read(runs.find, baseline)
    if other is None or other.name == run.name or other.head_branch is None:
        if named is not None and other is None:
            raise ConfigError(f"there is no run {named!r}")
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
    "reward": lambda line: (2.0 if line.now is None else line.now, line.number or 0, line.sample),
}


def failures_page(store: Store, query: Query) -> Page:
    """Return a page of the requests of a run that got no usable answer."""
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
