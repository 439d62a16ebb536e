"""Draw the end of the demo's practice as an SVG of a terminal: `python -m tests.pictures_terminal`.

python -m tests.pictures_terminal light FILE.svg
python -m tests.pictures_terminal dark FILE.svg
"""

import io
import os
import re
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from unittest.mock import patch

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

from grpo_practice import Workspace, demo
from grpo_practice.cli.options import DATABASE
from grpo_practice.cli.terminal import consoles, reports_view
from grpo_practice.cli.terminal.progress_view import Lines
from grpo_practice.cli.terminal.tally import Tally
from grpo_practice.core.events import Emit
from grpo_practice.reports.run_reports import PracticeReport

COLUMNS = 100
COMMAND = "grpo-practice practice --config practice.yaml"
SHOWN = 3
"""Experiences in the picture."""
Scheme = Literal["light", "dark"]
_SETTINGS = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS")
_THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": SVG_EXPORT_THEME}
_REMOTE_FONTS = re.compile(r"\s*@font-face \{\{.*?\n    \}\}", re.DOTALL)


def terminal_svg(scheme: Scheme) -> str:
    """The picture; equal for each call, and nothing in it is loaded from elsewhere."""
    form = _REMOTE_FONTS.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", "monospace")
    return _played().export_svg(
        title="grpo-practice (simulated)",
        theme=_THEMES[scheme],
        code_format=form,
        unique_id=f"terminal-{scheme}",
        clear=False,
    )


@cache
def _played() -> consoles._Console:
    # How this terminal is set up must not show in the picture, nor how long the run took.
    plain = {k: v for k, v in os.environ.items() if k not in _SETTINGS}
    with (
        patch.dict(os.environ, plain, clear=True),
        patch.object(reports_view, "duration", lambda _: ""),
        TemporaryDirectory() as name,
    ):
        console = consoles._Console(
            stderr=False, file=io.StringIO(), force_terminal=True, width=COLUMNS, record=True
        )
        console.print(f"$ {COMMAND}", style="bold")
        report = _practised(Path(name), Lines(Tally(), console, tenths=False).show)
        with patch.object(consoles, "out", console):
            reports_view.show_practice(report, limit=SHOWN)
    return console


def _practised(folder: Path, show: Emit) -> PracticeReport:
    demo._write_files(folder)
    with Workspace(folder / DATABASE, command=COMMAND) as ws:
        for dataset in ("practice", "test"):
            ws.datasets.upload(dataset, folder / f"{dataset}.jsonl")
        return ws.practise(folder / "practice.yaml", env={}, on_event=show)


def main(scheme: Scheme, file: str) -> None:
    Path(file).write_text(terminal_svg(scheme), "utf-8")


if __name__ == "__main__":
    main("dark" if sys.argv[1] == "dark" else "light", sys.argv[2])
