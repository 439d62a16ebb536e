"""Rollouts as files for other programs; a base of `Workspace`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.app.database_file import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.export.rows import RowFormat
    from grpo_practice.reports.exported_rows import ExportedRows
    from grpo_practice.store.queries.export_rows import ExportRow


class DataExports(DatabaseFile):
    """What a run played, for spreadsheets and for training."""

    def rows(self, run: str) -> "Iterator[ExportRow]":
        """Yield the rollouts of a run as flat rows, read as they are asked for.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.

        Raises:
            ConfigError: There is no such run, or nothing was played in it yet.
        """
        from grpo_practice.app.run_rows import run_rows

        with self._store() as store:
            yield from run_rows(store, run)

    def export_rows(
        self,
        run: str,
        path: str | Path,
        *,
        format: "RowFormat | None" = None,
        force: bool = False,
    ) -> "ExportedRows":
        """Write the rollouts of a run to a file, one to a row.

        Args:
            run: As for `rows`.
            path: File to write.
            format: `csv`, in which no text is a formula, or `jsonl`, which is exact; None: by the
                file's name.
            force: Whether to replace it.

        Raises:
            ConfigError: There is no such run, nothing was played in it yet, or the file is there
                or cannot be written.
        """
        from grpo_practice.export.files import write_lines
        from grpo_practice.export.rows import Counted, format_of_rows, row_lines
        from grpo_practice.reports.exported_rows import ExportedRows

        target = Path(path)
        format, rows = format or format_of_rows(target), Counted(self.rows(run))
        write_lines(target, row_lines(rows, format), force=force)
        return ExportedRows(run, format, target, rows.n)
