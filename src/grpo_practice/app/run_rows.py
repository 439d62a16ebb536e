"""The rollouts of a run as rows, read a page at a time."""

from collections.abc import Iterator
from shlex import quote

from grpo_practice.app.rollouts import played_run
from grpo_practice.errors import ConfigError
from grpo_practice.store import Store
from grpo_practice.store.queries import export_rows, runs
from grpo_practice.store.queries.export_rows import ExportRow
from grpo_practice.store.queries.pages import FIRST

PAGE = 100
"""Rollouts that are in memory at once: a single answer may be megabytes."""


def run_rows(store: Store, ref: str) -> Iterator[ExportRow]:
    """Yield the rollouts of `RUN[@BRANCH][:STEP]`, by step, group and attempt.

    No read goes on between two pages: that would keep a running practice's log from shrinking.

    Raises:
        ConfigError: There is no such run or step, or nothing was played in it yet.
    """
    run, branch, step = played_run(store, ref)
    numbers = store.read(export_rows.question_numbers, branch)
    place = FIRST
    while page := store.read(
        export_rows.export_page, branch, place, PAGE, numbers=numbers, step=step
    ):
        yield from page
        place = page[-1].place
    # After the read: of a run that is deleted meanwhile it finds nothing, and no error.
    store.read(runs.get, run.name)
    if place == FIRST:
        raise ConfigError(
            f"{ref} has no rollouts yet", hint=f"grpo-practice runs show {quote(run.name)}"
        )
