"""The methods of `Workspace` that show runs as pages."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

from grpo_practice.api.workspace import Workspace as Core

if TYPE_CHECKING:
    from grpo_practice.core.events import Emit
    from grpo_practice.viewer.report import SavedReport
    from grpo_practice.viewer.server import Viewed
    from grpo_practice.viewer.story import Story

VIEW_PORT = 8390
"""Default port of `view`."""
ReportFormat = Literal["html", "md"]


class Pages(Core):
    """Runs as one page to keep, and as pages in a browser."""

    def report(
        self,
        *runs: str,
        format: ReportFormat | None = None,
        output: str | Path | None = None,
        force: bool = False,
    ) -> "SavedReport":
        """Return a one-page report of runs: whether they improved, and why.

        Args:
            runs: Practice, training or evaluation runs; by default, the latest run of the first of
                these kinds that has any.
            format: `html` is one file that loads and runs nothing, `md` is for a pull request; None
                chooses by the name of the file.
            output: File to write.
            force: Whether to replace an existing file; an earlier HTML report is always replaced.

        Raises:
            ConfigError: A run does not exist or has not begun, or the file cannot be written.
        """
        from grpo_practice.core.errors import ConfigError
        from grpo_practice.core.files import check_free, write_file
        from grpo_practice.store.db import now
        from grpo_practice.store.queries.runs import named
        from grpo_practice.viewer.markdown import markdown
        from grpo_practice.viewer.pages import when
        from grpo_practice.viewer.report import Part, SavedReport, html
        from grpo_practice.viewer.shown_rollouts import choose
        from grpo_practice.viewer.story import latest_run, story_of

        path = None if output is None else Path(output)
        if format is None:
            format = "md" if path is not None and path.suffix.lower() == ".md" else "html"
        if format not in ("html", "md"):
            raise ConfigError(f"there is no report format {format!r}", hint="choose html or md")
        with self._store() as store:
            # First, because a file in the way would hide that a run is misspelt.
            names = [*dict.fromkeys(store.read(named, run).name for run in runs)]
            names = names or [latest_run(store)]
            force = force or (path is not None and _is_report(path))
            if path is not None and not force:
                check_free(path)  # before the work of making it
            stories = [story_of(store, name) for name in names]
            parts = [
                Part(n, story, choose(store, story, f"x{n}")) for n, story in enumerate(stories)
            ]
        made = now()
        text = markdown(parts, when(made)) if format == "md" else html(parts, self.path.name, made)
        if path is not None:
            write_file(path, text, force=force)
        answers = [part.result for part in parts]
        return SavedReport(names, format, text, path, answers, _next(stories[0]))

    def view(
        self,
        *,
        port: int = VIEW_PORT,
        open_browser: bool = False,
        on_ready: "Callable[[Viewed], None]" = lambda _: None,
        on_event: "Emit | None" = None,
    ) -> None:
        """Show the runs in a browser as `view_async` does, until Ctrl-C."""
        import asyncio

        work = self.view_async(
            port=port, open_browser=open_browser, on_ready=on_ready, on_event=on_event
        )
        with suppress(KeyboardInterrupt):
            asyncio.run(work)

    async def view_async(
        self,
        *,
        port: int = VIEW_PORT,
        open_browser: bool = False,
        on_ready: "Callable[[Viewed], None]" = lambda _: None,
        on_event: "Emit | None" = None,
    ) -> None:
        """Show the runs as web pages on this machine, until the task is cancelled.

        The viewer writes only tags and notes of runs, and runs may continue while it is open.

        Args:
            port: Port to listen on; 0 picks a free one.
            open_browser: Whether to open the address in the system's browser.
            on_ready: Called once pages are available; the address passed to it is a secret.
            on_event: Receives notices for the user.

        Raises:
            ConfigError: The database does not exist, or the port cannot be used.
            StoreError: The database cannot be read, or has another schema.
        """
        from grpo_practice.core.events import Notice, silent, tee
        from grpo_practice.viewer.server import serve_pages

        self._check_usable(made=True)
        emit = tee(on_event or silent)
        await serve_pages(
            self.path,
            port,
            on_ready=on_ready,
            open_browser=open_browser,
            notice=lambda text: emit(Notice(text)),
        )


def _is_report(path: Path) -> bool:
    """Return whether the file is a report, which can be written again from the database."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return b'<meta name="generator" content="grpo-practice">' in file.read(1000)


def _next(story: "Story") -> str:
    """Return the command to suggest after the report of a run."""
    run = story.report.run
    if run.kind == "practice" and story.measure is None and story.library:
        from grpo_practice.reports.base import export_command

        return export_command(run.name)
    if run.kind == "eval" and run.steps_closed == run.steps:
        return f"grpo-practice rollouts list {quote(run.name)}"
    if run.kind == "train":  # weights must exist before they can be evaluated
        return story.report.next_command
    return story.measure or story.report.next_command
