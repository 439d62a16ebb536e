"""Rollouts as files for other programs; a base of `Workspace`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from grpo_practice.app.database_file import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.app.training_data import DataOptions
    from grpo_practice.export.rows import RowFormat
    from grpo_practice.export.training import DataFormat
    from grpo_practice.reports.exported_rows import ExportedData, ExportedRows
    from grpo_practice.store.queries.export_rows import ExportRow


class DataExports(DatabaseFile):
    """Rollouts of a run, for spreadsheets and for training."""

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

    def training_rows(
        self, run: str, format: "DataFormat", **options: "Unpack[DataOptions]"
    ) -> "Iterator[dict[str, Any]]":
        """Yield rows for TRL's SFTTrainer or DPOTrainer, read as they are asked for.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.
            format: `sft` for single attempts, `dpo` for pairs of a better and a worse one.
            options: See `DataOptions`.

        Raises:
            ConfigError: There is no such run, it is an evaluation and `include_eval` is not set, or
                it has nothing to be trained on.
        """
        from grpo_practice.app.training_data import training_data

        with self._store() as store:
            yield from training_data(store, run, format, **options)

    def export_data(
        self,
        run: str,
        format: "DataFormat",
        path: str | Path,
        *,
        force: bool = False,
        **options: "Unpack[DataOptions]",
    ) -> "ExportedData":
        """Write rows for TRL's trainers to a file of JSON lines; see `training_rows`.

        Args:
            run: As for `training_rows`.
            format: As for `training_rows`.
            path: File to write.
            force: Whether to replace it.
            options: See `DataOptions`.

        Raises:
            ConfigError: As for `training_rows`; or the file is there, or cannot be written.
        """
        from grpo_practice.app.training_data import training_data
        from grpo_practice.export.files import write_lines
        from grpo_practice.export.rows import Counted, json_line
        from grpo_practice.reports.exported_rows import ExportedData

        with self._store() as store:
            data = training_data(store, run, format, **options)
            rows = Counted(data)
            write_lines(Path(path), map(json_line, rows), force=force)
        left_out = {str(why): n for why, n in data.left_out.items()}
        return ExportedData(run, format, Path(path), rows.n, left_out, data.simulated)
