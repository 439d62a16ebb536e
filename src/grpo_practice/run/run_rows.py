"""Rollouts of a run as rows, read one page at a time."""

from collections.abc import Iterator
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.run.rollouts import played_run
from grpo_practice.store import Store
from grpo_practice.store.queries import export_rows, runs
from grpo_practice.store.queries.export_rows import ExportRow
from grpo_practice.store.queries.pages import FIRST

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
