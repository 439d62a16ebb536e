"""Names that the shell completes: those of runs and of datasets, as the database has them."""

import os
from pathlib import Path
from typing import Literal

import typer

ASKED = "_GRPO_PRACTICE_COMPLETE"
"""Variable by which the shell asks for completions, in place of running a command."""


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the runs that begin so, the newest first."""
    return _names(ctx, incomplete, "runs")


def dataset_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the datasets that begin so."""
    return _names(ctx, incomplete, "datasets")


def _names(ctx: typer.Context, incomplete: str, kind: Literal["runs", "datasets"]) -> list[str]:
    from grpo_practice.api.workspace import Workspace
    from grpo_practice.cli.options import DATABASE

    path = Path(ctx.params.get("db") or os.environ.get("GRPO_PRACTICE_DB") or DATABASE)
    try:
        names = Workspace(path).names(kind) if path.is_file() else []  # to open it would make it
    except Exception:  # noqa: BLE001 - a traceback in the middle of a line helps nobody
        return []
    return [name for name in names if name.startswith(incomplete)]
