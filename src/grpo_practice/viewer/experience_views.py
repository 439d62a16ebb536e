"""The viewer's pages on experiences: all experiences of a run, and one with its history."""

from grpo_practice.core.errors import ConfigError
from grpo_practice.run.libraries import experience_report, library_report
from grpo_practice.run.library_refs import run_and_step
from grpo_practice.store import Store, steps
from grpo_practice.store.queries import pages
from grpo_practice.store.queries.pages import Life
from grpo_practice.viewer import charts
from grpo_practice.viewer.address import Page, Query

EXPERIENCES = 100
"""Experiences per page."""


def experiences_page(store: Store, query: Query) -> Page:
    """Return the experiences of a practice run; those in the last library come first."""
    run, branch, _ = run_and_step(store, query.text("run"))
    if run.kind != "practice":
        raise ConfigError(f"{run.name} is not a practice run, so it does not produce a library")
    lives = store.read(pages.lives, branch)
    rows = store.read(steps.on_line, branch)
    planned = max(len(rows), 1)
    closed = [row for row in rows if row.closed]
    report = library_report(store, query.text("run"), "last", quarantined=True) if closed else None
    here = {e.id for e in report.library.experiences} if report else set[str]()

    def order(life: Life) -> tuple[bool, int]:
        return life.id not in here, life.label

    shown, links = query.paged(sorted(lives, key=order), EXPERIENCES)
    values = {
        "run": run,
        "ref": query.text("run"),
        "lives": shown,
        **links,
        "lane": lambda life: charts.lane(life, planned),
        "planned": planned,
        "here": here,
        "report": report,
    }
    return Page("view/experiences.html", values)


def experience_page(store: Store, query: Query) -> Page:
    """Return the page of an experience: its text, evidence and origin."""
    run, branch, _ = run_and_step(store, query.text("run"))
    name = query.text("id")
    # Use its history, because a removed experience is no longer in any current library.
    report = experience_report(store, name, query.text("run"))
    life = next(
        (one for one in store.read(pages.lives, branch) if one.id == report.history.id), None
    )
    values = {
        "run": run,
        "ref": query.text("run"),
        "life": life,
        "report": report,
        "history": report.history,
    }
    return Page("view/experience.html", values)
