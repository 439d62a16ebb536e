"""Shell completion of run and dataset names from the database."""

import os
from pathlib import Path
from typing import Literal

import typer

ASKED = "_GRPO_PRACTICE_COMPLETE"
"""Variable that the shell sets to request completions instead of running a command."""


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of runs that start with the text, newest first."""
    return _names(ctx, incomplete, "runs")


def dataset_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of datasets that start with the text."""
    return _names(ctx, incomplete, "datasets")


def _names(ctx: typer.Context, incomplete: str, kind: Literal["runs", "datasets"]) -> list[str]:
    from grpo_practice import Workspace
    from grpo_practice.cli.options import DATABASE

    path = Path(ctx.params.get("db") or os.environ.get("GRPO_PRACTICE_DB") or DATABASE)
    try:
        names = Workspace(path).names(kind) if path.is_file() else []  # opening would create it
    except Exception:  # noqa: BLE001 - a traceback would garble the prompt
        return []
    return [name for name in names if name.startswith(incomplete)]
