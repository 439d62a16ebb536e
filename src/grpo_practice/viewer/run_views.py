"""The viewer's pages on runs: the list of all runs, and one run with its verdict first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from grpo_practice.core.errors import ConfigError
from grpo_practice.reports.run_list import KINDS, SORTS, as_it_stands, runs_report
from grpo_practice.reports.stored_runs import StageCost, run_report
from grpo_practice.reports.training import updates_by_step
from grpo_practice.rollout.chat_server.server import RequestError
from grpo_practice.store import Store, branches, steps, trained_steps
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import RunRow, ShownKind, StepRow, UpdateRow
from grpo_practice.viewer import charts
from grpo_practice.viewer.address import Page, Query, link
from grpo_practice.viewer.group_views import group_words
from grpo_practice.viewer.report import Part
from grpo_practice.viewer.shown_rollouts import ShownRollouts
from grpo_practice.viewer.story import story_of

RUNS = 100
"""Runs, and steps of a run, per page."""
_NOTHING = ShownRollouts((), (), 0, (), ())


def runs_page(store: Store, query: Query) -> Page:
    """Return a page of the list of runs."""
    kind: Literal[ShownKind, "all"] = query.choice("kind", "all", *KINDS)
    sort = query.choice("sort", *SORTS)
    grep, tags = query.optional("grep"), (query.optional("tag") or "").split()
    wanted = None if kind == "all" else kind
    report = runs_report(store, kind=wanted, grep=grep, tags=tags, sort=sort)
    shown, links = query.paged(report.runs, RUNS)
    values = {
        "report": report,
        "rows": shown,
        "all_simulated": bool(report.runs) and all(run.simulated for run in report.runs),
        "kind": kind,
        "kinds": KINDS,
        "grep": grep or "",
        "tag": " ".join(tags),
        "sort": sort,
        **links,
        "database": store.path.name,
    }
    return Page("view/runs.html", values)


def label_run(store: Store, query: Query) -> str:
    """Set the tags and the note of a run as the form on its page says; return that page."""
    run = store.read(runs.named, query.text("run"))
    tags = (query.optional("tags") or "").split()
    removed = [tag for tag in run.tags if tag not in tags]
    try:
        store.label_run(run.name, tags, removed, query.optional("note") or "")
    except ConfigError as e:
        raise RequestError(str(e), status=400) from None
    return link("/run", run=run.name)


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a run, for the part of its page that is refreshed while it is running."""

    run: RunRow
    rows: Sequence[StepRow]
    outcomes: Mapping[str, int]
    costs: Sequence[StageCost]
    updates: Mapping[int, UpdateRow] = field(default_factory=dict)
    """Last update of each step of a training run."""

    @property
    def goes_on(self) -> bool:
        """True while a process works on the run."""
        return self.run.status == "running"

    @property
    def planned(self) -> int:
        """Number of rollouts planned in all steps."""
        return sum(row.rollouts for row in self.rows)

    @property
    def played(self) -> int:
        """Number of rollouts that have ended."""
        return sum(self.outcomes.values())

    @property
    def failed(self) -> int:
        """Number of ended rollouts without an answer."""
        return self.played - self.outcomes.get("ok", 0)

    @property
    def tokens(self) -> int | None:
        """Known tokens, in and out; None if none are known."""
        if self.updates:
            return sum(update.tokens for update in self.updates.values())
        known = [(c.tokens_in or 0) + (c.tokens_out or 0) for c in self.costs if c.tokens_in]
        return sum(known) if known else None

    @property
    def usd(self) -> float | None:
        """Known cost in dollars; None if no cost is known."""
        known = [cost.usd for cost in self.costs if cost.usd is not None]
        return sum(known) if known else None

    @property
    def paid(self) -> bool:
        """False for a training run without paid calls: its weights are sampled in-process."""
        return self.run.kind != "train" or bool(self.costs)

    @property
    def unpriced(self) -> int:
        """Number of calls of unknown cost."""
        return sum(cost.unpriced for cost in self.costs)


def _renewed(progress: Progress, query: Query) -> dict[str, object]:
    """Return the values of the refreshed part."""
    shown, links = query.paged(progress.rows, RUNS)
    return {
        "progress": progress,
        "steps": shown,
        **links,
        "name": progress.run.name,
        "words": group_words(progress.run) if progress.run.kind == "train" else {},
    }


def live_page(store: Store, query: Query) -> Page:
    """Return the part of a run's page that is refreshed while the run is running."""
    run = as_it_stands(store, store.read(runs.named, query.text("run")))
    branch = store.read(branches.load, run.head_branch) if run.head_branch else None
    progress = Progress(
        run,
        store.read(steps.on_line, branch) if branch else [],
        store.read(scores.outcomes, branch) if branch else {},
        store.read(runs.costs, run.name),
        updates_by_step(store.read(trained_steps.updates, branch))
        if branch and run.kind == "train"
        else {},
    )
    return Page("view/live.html", _renewed(progress, query))


def run_page(store: Store, query: Query) -> Page:
    """Return the page of a run: whether it got better, with links to all details."""
    run = store.read(runs.named, query.text("run"))
    if run.head_branch is None or run.kind == "recorded":
        part, report = None, run_report(store, run.name)
    else:
        part = Part(0, story_of(store, run.name, whole=False), _NOTHING)
        report = part.story.report
    values = {
        "report": report,
        "run": report.run,
        "part": part,
        "children": [run for run in runs_report(store).runs if run.parent_run == report.run.name][
            :RUNS
        ],
        "shade": charts.shade,
    }
    updates = report.trained.by_step if report.trained else {}
    progress = Progress(report.run, report.steps, report.outcomes, report.costs, updates)
    return Page("view/run.html", values | _renewed(progress, query))
