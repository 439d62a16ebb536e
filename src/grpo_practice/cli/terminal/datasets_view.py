"""Datasets on the terminal."""

from shlex import quote
from typing import TYPE_CHECKING, Literal

from grpo_practice.cli.options import PROGRAM, needed_model, on_database
from grpo_practice.cli.terminal.formatting import choose, count, say, say_next
from grpo_practice.cli.terminal.tables import facts, table
from grpo_practice.core.text import brief

if TYPE_CHECKING:
    from grpo_practice.reports.datasets import (
        DatasetList,
        DatasetReport,
        DatasetSample,
        DatasetSplit,
        ExportedDataset,
        StoredDataset,
    )

QUESTION, ANSWER = 80, 40
"""Maximum length of a cell."""
NAMED = 10
"""Maximum number of sources and levels that are listed."""
REASONS = 5
"""Maximum number of unusable answers that are listed."""


def listed(found: "DatasetList") -> None:
    """Print the datasets, one per line."""
    table(
        ["dataset", "rows", "revision", "uploaded", "from"],
        [(d.name, str(d.n), str(d.revision), d.created_at[:10], d.origin) for d in found.datasets],
        right=["rows", "revision"],
    )
    say_next(found.next_command)


def dataset(found: "DatasetReport") -> None:
    """Print a dataset and its first rows."""
    row = found.dataset
    say(f"{row.name} (revision {row.revision}): {count(row.n, 'row')}", style="bold")
    facts([("sha256", row.sha256), ("from", row.origin), ("uploaded", row.created_at)])
    rows = [
        (s.question, "" if s.answer is None else str(s.answer), s.source, s.level or "")
        for s in found.rows
    ]
    table(
        ["question", "answer", "source", "level"],
        [
            [brief(cells[0], QUESTION), *(brief(cell, ANSWER) for cell in cells[1:])]
            for cells in rows
        ],
    )
    if any(len(s.question) > QUESTION or len(str(s.answer)) > ANSWER for s in found.rows):
        say(f"  shortened; in full: {on_database(f'{PROGRAM} data show {quote(row.name)} --json')}")
    _next_eval(row.name, found.verify)


def stored(found: "StoredDataset") -> None:
    """Print the dataset that an upload or a download stored, and its unusable answers."""
    row, verify = found.dataset, found.verify
    before = "" if found.new else ", as before"
    say(f"{row.name} (revision {row.revision}) holds {count(row.n, 'row')}{before}", style="bold")
    downloaded = "://" in found.origin
    for text in (*([f"from {found.origin}"] if downloaded else []), *found.notes):
        say(f"  {text}")
    if found.unusable:
        bad = len(found.unusable)
        named = [f"row {n}: {reason}" for n, reason in list(found.unusable.items())[:REASONS]]
        more = f"; and {bad - REASONS} more" if bad > REASONS else ""
        way = "try another function: --verify NAME"
        if found.next_verify == verify:
            way = "runs leave them out, as does --skip-bad"
        say(
            f"  verify {verify} cannot use {bad} of {count(row.n, 'answer')}:"
            f" {'; '.join(named)}{more} ({way})"
        )
    else:
        say(f"  verify {verify} can use every answer")
    _next_eval(row.name, found.next_verify)


def ask_select(question: str) -> Literal["any", "all"] | None:
    """Ask the user how several correct options count; return None without a terminal."""
    said = choose(
        f"{question}. Is any one of them enough, or are exactly these required?", "any", "all"
    )
    return "any" if said == "any" else "all" if said == "all" else None


def exported(found: "ExportedDataset") -> None:
    """Print the file that a dataset was written to."""
    rows = count(found.dataset.n, "row")
    say(f"wrote {rows} of {found.dataset.name} to {found.path}")
    if found.changed:
        say(f"  {found.changed} of {rows} would change when read back")
    say_next(found.next_command)


def split(found: "DatasetSplit") -> None:
    """Print the parts of a split: rows, shares, and the rows of each stratum."""
    row, parts = found.dataset, found.parts
    held = "" if any(part.new for part in parts) else ", as before"
    whole = f"{row.name} (revision {row.revision}, {count(row.n, 'row')})"
    say(f"{whole} is split{held}:", style="bold")
    strata = sorted({name for part in parts for name in part.strata})[:NAMED]
    headers = ["dataset", "rows", "share", "requested", *(brief(name, 20) for name in strata)]
    total = sum(part.dataset.n for part in parts)
    rows = [
        [
            f"{part.dataset.name} (revision {part.dataset.revision})",
            str(part.dataset.n),
            f"{100 * part.dataset.n / total:.1f} %",
            f"{100 * part.share:g} %",
            *(str(part.strata.get(name, 0)) for name in strata),
        ]
        for part in parts
    ]
    table(headers, rows, right=headers[1:])
    say("  no question (ignoring case and spaces) and no cluster is in more than one of them")
    _next_eval(parts[-1].dataset.name, found.verify)


def sample(found: "DatasetSample") -> None:
    """Print the sample that was drawn."""
    row, source = found.dataset, found.source
    held = "" if found.new else ", as before"
    of = f"of the {source.n} of {source.name} (seed {found.seed}){held}"
    say(f"{row.name} (revision {row.revision}) holds {count(row.n, 'row')} {of}", style="bold")
    _next_eval(row.name, found.verify)


def _next_eval(name: str, verify: str) -> None:
    """Print the command that evaluates on a dataset, with the project's config if that names it."""
    from grpo_practice.config.reading.discover import is_divided, project_config

    if is_divided(name):
        say_next(f"{PROGRAM} data split {quote(name)} --into train=0.5,test=0.5")
        return
    if config := project_config(name):
        say_next(f"{PROGRAM} eval --config {config}")
        return
    say_next(f"{PROGRAM} eval{needed_model()} --dataset {quote(name)} --verify {verify}")
