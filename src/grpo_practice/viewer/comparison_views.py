"""The viewer's page on two runs: their differences, question by question."""

from grpo_practice.core.stats.paired import Moved
from grpo_practice.reports.rollout_report import is_right
from grpo_practice.reports.run_list import runs_report
from grpo_practice.run.comparison import compare
from grpo_practice.store import Store
from grpo_practice.store.queries import pages, rollout_list, runs
from grpo_practice.store.records import Branch
from grpo_practice.viewer import charts
from grpo_practice.viewer.address import Page, Query
from grpo_practice.viewer.matrix_view import alike

ROWS = 50
"""Questions per page."""


def compare_page(store: Store, query: Query) -> Page:
    """Return the page that compares two runs: the verdict and the changed questions."""
    a, b = query.optional("a"), query.optional("b")
    listed = runs_report(store).runs
    names = [run.name for run in listed if run.has_score or run.kind == "practice"]
    if a is None or b is None:
        choice = {"names": names, "a": a or "", "b": b or "", "alike": alike(store)}
        return Page("view/compare_choice.html", choice)
    report = compare(store, [a, b])
    contrast = report.contrasts[0]
    only = query.choice("only", "moved", "flipped", "better", "worse", "equal")
    found = (q for q in contrast.difference.questions if _passes(q, only))
    shown, links = query.paged(sorted(found, key=lambda q: -abs(q.by)), ROWS)
    values = {
        "a": a,
        "b": b,
        "names": names,
        "rows_of": {run.name: run for run in listed},
        "report": report,
        "contrast": contrast,
        "conclusion": report.conclusion(contrast),
        "only": only,
        "rows": shown,
        **links,
        "places": [store.read(pages.last_plays, _branch(store, arm.run)) for arm in report.arms],
        "numbers": store.read(
            rollout_list.numbers, _branch(store, contrast.arm).id, [int(q.key) for q in shown]
        ),
        "range": lambda score: charts.score_range(score.mean or 0.0, score.ci95),
        "shade": charts.shade,
    }
    return Page("view/compare.html", values)


def _passes(question: Moved, only: str) -> bool:
    # Means are floats, so a difference of up to 1e-9 counts as rounding error.
    return {
        "moved": abs(question.by) > 1e-9,
        "flipped": is_right(question.a) != is_right(question.b),
        "better": question.by > 1e-9,
        "worse": question.by < -1e-9,
        "equal": abs(question.by) <= 1e-9,
    }[only]


def _branch(store: Store, run: str) -> Branch:
    branch = store.read(runs.newest_branch, run)
    assert branch is not None, "a run that is compared was begun"
    return branch
