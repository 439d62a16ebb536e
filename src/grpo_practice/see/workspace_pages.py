"""Pages of stored runs: the part of `Workspace` that shows them to people."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

from grpo_practice.app.database_file import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.reports.saved_report import SavedReport
    from grpo_practice.see.story import Story

ReportFormat = Literal["html", "md"]


class RunPages(DatabaseFile):
    """Pages of runs; a base of `Workspace`."""

    def report(
        self,
        *runs: str,
        format: ReportFormat | None = None,
        output: str | Path | None = None,
        force: bool = False,
    ) -> "SavedReport":
        """Return the report of runs as one page: whether they got better, and why.

        Args:
            runs: Runs of practice, training and evaluation; none: the latest of them, in this
                order.
            format: `html` is one file that loads nothing and runs nothing, `md` is for a pull
                request; None: by the file's name.
            output: File to write.
            force: Whether to replace it.

        Raises:
            ConfigError: There is no such run, one was never begun, or the file cannot be written.
        """
        from grpo_practice.errors import ConfigError
        from grpo_practice.export.files import check_free, write_file
        from grpo_practice.reports.saved_report import SavedReport
        from grpo_practice.see.markdown import markdown
        from grpo_practice.see.pages import when
        from grpo_practice.see.report import Part, html
        from grpo_practice.see.shown_rollouts import choose
        from grpo_practice.see.story import latest_run, story_of
        from grpo_practice.store.db import now
        from grpo_practice.store.queries.runs import get

        path = None if output is None else Path(output)
        if format is None:
            format = "md" if path is not None and path.suffix.lower() == ".md" else "html"
        if format not in ("html", "md"):
            raise ConfigError(f"there is no report format {format!r}", hint="there are html, md")
        with self._store() as store:
            names = [*dict.fromkeys(runs)] or [latest_run(store)]
            for name in names:  # a file in the way would hide that a run is misspelt
                store.read(get, name)
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
        answers = [part.answer for part in parts]
        return SavedReport(names, format, text, path, answers, _next(stories[0]))


def _next(story: "Story") -> str:
    """Return the command to type after the report of a run."""
    run = story.report.run
    if run.kind == "practice" and story.measure is None and story.library:
        return f"grpo-practice export-agent --run {quote(run.name)}"
    if run.kind == "eval" and run.steps_closed == run.steps:
        return f"grpo-practice rollouts list {quote(run.name)}"
    if run.kind == "train":  # weights have to be there before they can be measured
        return story.report.next_command
    return story.measure or story.report.next_command
