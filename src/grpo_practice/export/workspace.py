"""The methods of `Workspace` that write rollouts for other programs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from grpo_practice.api.workspace import Workspace as Core

if TYPE_CHECKING:
    from grpo_practice.export.own_skill import WrittenSkill
    from grpo_practice.export.reports import ExportedData, ExportedRows, ExportedRuns, ImportedRuns
    from grpo_practice.export.rows import RowFormat
    from grpo_practice.export.training_data import DataOptions
    from grpo_practice.export.trl_rows import DataFormat


class Exports(Core):
    """Rollouts as files for other programs."""

    def export_rows(
        self,
        run: str,
        path: str | Path,
        *,
        format: "RowFormat | None" = None,
        force: bool = False,
    ) -> "ExportedRows":
        """Write the rollouts of a run to a file, one per row.

        Args:
            run: As for `rows`.
            path: File to write.
            format: `csv`, in which no text can act as a formula, or `jsonl`, which is exact; None
                chooses by the name of the file.
            force: Whether to replace an existing file.

        Raises:
            ConfigError: The run does not exist, none of its rollouts has been played yet, or the
                file already exists or cannot be written.
        """
        from grpo_practice.core.files import write_lines
        from grpo_practice.export.reports import ExportedRows
        from grpo_practice.export.rows import Counted, format_of_rows, row_lines

        target = Path(path)
        format, rows = format or format_of_rows(target), Counted(self.rows(run))
        write_lines(target, row_lines(rows, format), force=force)
        return ExportedRows(run, format, target, rows.n)

    def export_run(self, run: str, path: str | Path, *, force: bool = False) -> "ExportedRuns":
        """Write a run to a database of its own, with everything that it needs.

        The file also contains the evaluations that the run made, the runs whose libraries it uses,
        its questions and all paid answers.

        Args:
            run: Run or experiment.
            path: File to create; only you can read it.
            force: Whether to replace an existing file.

        Raises:
            ConfigError: The run does not exist, or the file already exists or cannot be written.
            StoreError: The database is damaged, or the file cannot be written.
        """
        from grpo_practice.export.moved_runs import export_runs

        return export_runs(self.path, run, Path(path), force=force)

    def import_runs(
        self,
        file: str | Path,
        runs: Sequence[str] = (),
        *,
        names: "Mapping[str, str] | str" = MappingProxyType({}),
    ) -> "ImportedRuns":
        """Take in runs from another database; either all of them are stored, or nothing is.

        Runs that are here already are not imported again. Until you trust the file, its runs start
        no programs, read no files and get none of your keys.

        Args:
            file: The other database, which is not changed.
            runs: Runs or experiments, which come with the runs that they made or need; () for all.
            names: Experiment → new name; a single text renames the only experiment.

        Raises:
            ConfigError: A run does not exist, or the name of an experiment belongs to another run.
            StoreError: The file is damaged, or belongs to another program or version.
        """
        from grpo_practice.export.moved_runs import import_runs

        return import_runs(self.path, Path(file), runs, names)

    def training_rows(
        self, run: str, format: "DataFormat", **options: "Unpack[DataOptions]"
    ) -> "Iterator[dict[str, Any]]":
        """Yield rows for TRL's SFTTrainer or DPOTrainer, reading each one on demand.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.
            format: `sft` for single attempts, `dpo` for pairs of a better and a worse attempt.
            options: See `DataOptions`.

        Raises:
            ConfigError: The run does not exist, it is an evaluation and `include_eval` is not set,
                or it has no usable training data.
        """
        from grpo_practice.export.training_data import training_data

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
        """Write rows for TRL's trainers to a JSON Lines file; see `training_rows`.

        Args:
            run: As for `training_rows`.
            format: As for `training_rows`.
            path: File to write.
            force: Whether to replace an existing file.
            options: See `DataOptions`.

        Raises:
            ConfigError: As for `training_rows`; or the file already exists or cannot be written.
        """
        from grpo_practice.core.files import write_lines
        from grpo_practice.export.reports import ExportedData
        from grpo_practice.export.rows import Counted, json_line
        from grpo_practice.export.training_data import training_data

        with self._store() as store:
            data = training_data(store, run, format, **options)
            rows = Counted(data)
            write_lines(Path(path), map(json_line, rows), force=force)
        left_out = {str(why): n for why, n in data.left_out.items()}
        return ExportedData(run, format, Path(path), rows.n, left_out, data.simulated)

    def write_skill(
        self, folder: str | Path = "skills/grpo-practice", *, force: bool = False
    ) -> "WrittenSkill":
        """Write the Agent Skill with which a coding agent uses this program.

        Args:
            folder: Folder called `grpo-practice`, to be created if necessary.
            force: Whether to replace another `SKILL.md` in it.

        Raises:
            ConfigError: The folder has another name, contains another `SKILL.md`, or cannot be
                written.
        """
        from grpo_practice.export.own_skill import write_skill

        return write_skill(Path(folder), force=force)
