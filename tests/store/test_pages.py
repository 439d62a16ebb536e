"""Pages over a line of branches: every row once, in order, found by an index."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.store import Store, branches
from grpo_practice.store.queries import history, pages, rollout_list, runs, scores
from grpo_practice.store.queries.rollout_list import (
    FIRST,
    SORTS,
    Place,
    RolloutRow,
    Sort,
    Wanted,
    rollout_page,
)
from grpo_practice.store.records import Branch
from tests.run.project import Project, restarted


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    """A run of four steps that was restarted at the third: its line has two segments."""
    return await restarted(tmp_path / "p")


@pytest.fixture
def store(project: Project) -> Iterator[Store]:
    with Store(project.db) as store:
        yield store


def change(store: Store, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute(sql, values)


def head(store: Store, run: str = "toy") -> Branch:
    row = store.read(runs.get, run)
    assert row.head_branch is not None
    return store.read(branches.load, row.head_branch)


def read_all(next_page: Callable[[Any], list[Any]], place_of: Callable[[Any], Any]) -> list[Any]:
    """Every row of all pages, one after the other."""
    after, found = None, list[Any]()
    while page := next_page(after):
        found += page
        after = place_of(page[-1])
    return found


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("step", [None, 0, 3])
async def test_pages_of_rollouts_are_the_list(store: Store, n: int, step: int | None) -> None:
    branch = head(store)
    assert len(branch.line) == 2
    whole = store.read(rollout_page, branch, FIRST, 1000, Wanted(step))
    assert len(whole) == (72 if step is None else 18)
    paged = read_all(
        lambda after: store.read(rollout_page, branch, after or FIRST, n, Wanted(step)),
        lambda row: Place(row.step, row.slot, row.attempt),
    )
    assert paged == whole


async def test_failed_rollouts_alone(store: Store) -> None:
    branch = head(store)
    at = [(0, 1, 2), (1, 0, 0), (3, 5, 1)]
    for step, slot, attempt in at:
        change(
            store,
            """UPDATE rollouts SET outcome = 'error', reason = 'provider'
                WHERE branch_id = ? AND step = ? AND slot = ? AND attempt = ?""",
            *(branch.holder(step), step, slot, attempt),
        )
    wanted = Wanted(unanswered=True)
    paged = read_all(
        lambda after: store.read(rollout_page, branch, after or FIRST, 2, wanted),
        lambda row: Place(row.step, row.slot, row.attempt),
    )
    assert [(row.step, row.slot, row.attempt) for row in paged] == at


@pytest.mark.parametrize("n", [7, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("wanted", [Wanted(), Wanted(step=1), Wanted(failed=True)])
async def test_sorted_pages_are_the_sorted_list(
    store: Store, n: int, sort: Sort, wanted: Wanted
) -> None:
    branch = head(store)
    change(store, "UPDATE rollouts SET tokens_out = rollout_id % 7 * 100, model_ms = slot * 10")
    change(store, "UPDATE rollouts SET tokens_in = NULL WHERE rollout_id % 8 = 0")
    change(store, "UPDATE verdicts SET reward = NULL, error = 'x' WHERE rollout_id % 9 = 0")
    rows = store.read(rollout_page, branch, FIRST, 1000, wanted)
    value: Callable[[RolloutRow], float] = {
        "reward": lambda row: -1 if row.reward is None else row.reward,
        "tokens": lambda row: -(row.tokens or 0),
        "time": lambda row: -round(row.seconds * 1000),
    }[sort]
    paged = read_all(
        lambda after: store.read(rollout_list.sorted_keys, branch, wanted, sort, after, n),
        lambda key: key,
    )
    assert paged == sorted((value(r), r.step, r.slot, r.attempt) for r in rows)
    assert len(paged) > 10


async def test_one_rollout(store: Store) -> None:
    branch = head(store)
    whole = store.read(rollout_page, branch, FIRST, 1000, Wanted())
    assert store.read(rollout_list.one_rollout, branch, Place(2, 3, 1)) == whole[2 * 18 + 3 * 3 + 1]
    for place in (Place(2, 3, 3), Place(2, 6, 0), Place(9, 0, 0), Place(-1, -1, -1)):
        assert store.read(rollout_list.one_rollout, branch, place) is None


async def test_groups(store: Store) -> None:
    branch = head(store)
    paged = read_all(
        lambda after: store.read(pages.group_page, branch, after or (-1, -1), 5),
        lambda group: (group.step, group.slot),
    )
    assert [(g.step, g.slot) for g in paged] == [(s, i) for s in range(4) for i in range(6)]
    assert {g.status for g in paged} == {"distilled", "uniform"}
    assert all(g.informative == (g.status == "distilled") for g in paged)
    only = store.read(lambda db: pages.group_page(db, branch, (-1, -1), 50, step=2))
    assert only == [g for g in paged if g.step == 2]
    numbers = [g.number for g in only]
    assert all(number is not None and 1 <= number <= 12 for number in numbers)


async def test_a_question_has_a_visit_each_time_that_it_is_asked(store: Store) -> None:
    branch = head(store)
    visits = store.read(pages.question_visits, branch)
    assert len(visits) == 24
    by_question = dict[int, list[pages.Visit]]()
    for visit in visits:
        by_question.setdefault(visit.sample_id, []).append(visit)
    assert {tuple(v.visit for v in found) for found in by_question.values()} == {(0, 1)}
    means = store.read(rollout_list.question_means, branch)
    assert {s: [v.mean for v in found] for s, found in by_question.items()} == means
    assert sum(v.scored for v in visits) == 72


async def test_a_visit_that_is_not_played_yet_has_no_mean(store: Store) -> None:
    branch = head(store)
    change(store, "UPDATE steps SET sums = NULL WHERE step = 3")
    visits = store.read(pages.question_visits, branch)
    change(store, "DELETE FROM verdicts")
    unscored = store.read(pages.question_visits, branch)
    assert {v.mean for v in unscored if v.step == 3} == {None}
    assert [(v.step, v.slot) for v in unscored] == [(v.step, v.slot) for v in visits]


async def test_costs_by_step_and_stage_add_up_to_those_of_the_run(store: Store) -> None:
    by_step = store.read(pages.stage_costs, "toy")
    assert {cost.step for cost in by_step} == {0, 1, 2, 3}
    total = store.read(runs.costs, "toy")
    for stage in {cost.stage for cost in total}:
        calls = sum(cost.calls for cost in by_step if cost.stage == stage)
        assert calls == sum(cost.calls for cost in total if cost.stage == stage)


async def test_failures_over_all_branches(store: Store) -> None:
    for step in (1, 0, 1):
        change(
            store,
            """INSERT INTO failures (invocation_id, branch_id, step, slot, attempt, stage, kind,
                 http_status, message, tries, maybe_paid, created_at)
               SELECT (SELECT max(invocation_id) FROM invocations), branch_id, ?, 0, 1, 'play',
                 'provider', 503, 'busy', 3, 0, 't' FROM branches WHERE run_id = 'toy'""",
            step,
        )
    whole = store.read(pages.failure_page, "toy", None, 100)
    assert [f.step for f in whole] == [0, 1, 1, 0, 1, 1]
    paged = read_all(
        lambda after: store.read(pages.failure_page, "toy", after, 2),
        lambda failure: (failure.branch_id, failure.step, failure.failure_id),
    )
    assert paged == whole
    assert whole[0].http_status == 503
    assert store.read(pages.count_failures, "toy") == 6


async def test_lives_are_the_histories_of_all_experiences(store: Store) -> None:
    branch = head(store)
    lives = store.read(pages.lives, branch)
    assert [life.id for life in lives][:2] == ["E1", "E2"]
    library = max(
        library
        for (library,) in store.read(
            lambda db: db.execute("SELECT library_out FROM steps").fetchall()
        )
    )
    for life in lives:
        whole = store.read(
            lambda db, label: history.experience(
                db, "toy", label, branch=branch.id, until=10, library=library
            ),
            life.label,
        )
        assert [(c.step, c.op, c.text) for c in life.changes] == [
            (c.step, c.op, c.text) for c in whole.changes
        ]
        assert life.born == whole.changes[0].step
        assert (life.ended is None) == (whole.text is not None)
        assert [c.groups for c in life.changes] == [
            tuple((c.step, p.slot) for p in c.proposals) for c in whole.changes
        ]


async def test_lessons(store: Store) -> None:
    branch = head(store)
    groups = store.read(pages.group_page, branch, (-1, -1), 100)
    taught = [g for g in groups if g.status == "distilled"]
    assert taught
    # A comparison that found no lesson has taught nothing.
    assert any(store.read(pages.lessons_of, branch, g.step, g.slot) for g in taught)


async def test_an_evaluation_has_the_same_pages(store: Store, project: Project) -> None:
    await project.evaluate()
    branch = head(store, "toy/eval")
    assert len(store.read(rollout_page, branch, FIRST, 1000)) == 12
    asked = store.read(pages.question_visits, branch)
    assert [str(v.sample_id) for v in asked] == [
        q.key for q in store.read(scores.questions, branch)
    ]
    assert store.read(pages.group_page, branch, (-1, -1), 10) == []


READS: dict[str, Callable[[sqlite3.Connection, Branch], object]] = {
    "rollouts": lambda db, b: rollout_page(db, b, Place(1, 2, 0), 50),
    "rollouts of a step": lambda db, b: rollout_page(db, b, FIRST, 50, Wanted(step=1)),
    "failed": lambda db, b: rollout_page(db, b, Place(1, 2, 0), 50, Wanted(unanswered=True)),
    "groups": lambda db, b: pages.group_page(db, b, (1, 2), 50),
    "failures": lambda db, b: pages.failure_page(db, "toy", (1, 0, 0), 50),
    "lessons": lambda db, b: pages.lessons_of(db, b, 1, 0),
    "lives": lambda db, b: pages.lives(db, b),
    "visits": lambda db, b: pages.question_visits(db, b),
}


@pytest.mark.parametrize("name", READS)
async def test_no_page_reads_or_sorts_more_than_it_shows(store: Store, name: str) -> None:
    plans = _plans(store, READS[name])
    assert plans
    # JSON of this page's samples, or of one operation.
    few = ("SCAN json_each", "SCAN behind")
    for sql, steps in plans.items():
        scans = [s for s in steps if s.startswith("SCAN") and not s.startswith(few)]
        assert scans == [], sql
        if name in ("rollouts", "rollouts of a step", "failed", "groups", "failures"):
            sorts = [s for s in steps if "TEMP B-TREE" in s and "GROUP BY" not in s]
            assert sorts == [], sql
        if name == "failed" and "FROM steps" in sql:
            assert any("rollouts_failed" in s for s in steps), steps


def _plans(
    store: Store, read: Callable[[sqlite3.Connection, Branch], object]
) -> dict[str, list[str]]:
    """Statement → the steps of SQLite's plan for it."""
    branch, asked = head(store), list[str]()

    def explain(db: sqlite3.Connection) -> dict[str, list[str]]:
        db.set_trace_callback(asked.append)
        read(db, branch)
        db.set_trace_callback(None)
        return {
            sql: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
            for sql in asked
            if sql.lstrip().startswith("SELECT")
        }

    return store.read(explain)
