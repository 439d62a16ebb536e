"""Runs that move between databases: written to a file of their own, and taken in from one."""

import os
import re
import shlex
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from grpo_practice.config.schema.base import NAME, check_name
from grpo_practice.config.trust.word import user_trust
from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.core.files import replacement
from grpo_practice.export.reports import ExportedRuns, ImportedRuns
from grpo_practice.run.database import existing, free_target
from grpo_practice.run.trusting import trusts
from grpo_practice.store import Store, check
from grpo_practice.store.backup import copy
from grpo_practice.store.db import PARTS
from grpo_practice.store.migrate import our_tables
from grpo_practice.store.queries import runs
from grpo_practice.store.trained_steps import checkpoint_paths, checkpoints_root
from grpo_practice.store.transfer import NameClashError, write_runs


def export_runs(database: Path, run: str, target: Path, *, force: bool) -> ExportedRuns:
    """Write a run to a database of its own; see `Workspace.export_run`."""
    file = free_target(existing(database), target, replace=force).resolve()
    with _private_copy(database) as source:
        wanted = _named(source, [run])
        with replacement(file, mode=0o600, flushed=True, parts=PARTS) as temporary:
            moved = write_runs(source, temporary, wanted, folder=target.name)
        with Store(source, "look") as store:
            trained = store.read(checkpoint_paths, list(moved.added))
    left = checkpoints_root(database) if trained else None
    return ExportedRuns(list(moved.added), target, target.stat().st_size, left)


def import_runs(
    database: Path, file: Path, wanted: Sequence[str], names: Mapping[str, str] | str
) -> ImportedRuns:
    """Take runs in from another database; see `Workspace.import_runs`."""
    if not file.is_file():  # opening a pipe may block forever
        raise ConfigError(f"there is no database {file}", hint="name a file of `runs export`")
    if database.exists() and file.samefile(database):
        raise ConfigError(f"{file} is this database itself", hint="name another with --db")
    # Nobody can change the copy between the check and its use.
    with _private_copy(file) as source:
        _refuse_damage(source, file)
        chosen = _named(source, wanted)
        names = {_only_experiment(source, chosen): names} if isinstance(names, str) else names
        for name in names.values():
            check_name(name, "an experiment")
        with Store(database) as store:
            try:
                moved = store.import_runs(source, chosen, names)
            except NameClashError as e:
                raise NameClashError(e.free, hint=_way_out(e, file)) from e
            untrusted = _untrusted(store, moved.added.values())
    return ImportedRuns(file, moved.added, moved.known, moved.hidden, untrusted)


@contextmanager
def _private_copy(database: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="grpo-practice-") as folder:
        made = Path(folder) / "copy.db"
        copy(database, made)
        try:
            yield made
        except StoreError as e:
            if str(made) not in f"{e}{e.hint}":
                raise
            said, hint = (t and t.replace(str(made), str(database)) for t in (str(e), e.hint))
            raise StoreError(said or "", hint=hint) from e


def _refuse_damage(source: Path, file: Path) -> None:
    """Raise StoreError if the checks of `db check` find a problem."""
    wrong = next((text for found in check.check(source) for text in found.wrong), None)
    wrong = wrong or _bad_text(source)
    if wrong is not None:
        raise StoreError(
            f"the database {file} is damaged: {wrong}; nothing was imported",
            hint=f"to see the details: grpo-practice db check --db {shlex.quote(str(file))}",
        )


def _bad_text(source: Path) -> str | None:
    """Return the fault of a text that would make the importing database unreadable, or None."""
    with closing(sqlite3.connect(source)) as db:
        for table in sorted(our_tables()):
            try:
                for _ in db.execute(f"SELECT * FROM {table}"):
                    pass
            except sqlite3.OperationalError as e:
                return f"{table}: {e}"
        names = db.execute("SELECT run_id, exp_id FROM runs").fetchall()
        folders = [folder for (folder,) in db.execute("SELECT base_dir FROM branches")]
    for run, exp_id in names:
        known = all(re.fullmatch(NAME, part) for part in exp_id.split("/"))
        below = run == exp_id or run.startswith(f"{exp_id}/")
        if not (known and below and run.isprintable()):
            return f"{run!r} is no name of a run"
    bad = next((folder for folder in folders if "\0" in (folder or "")), None)
    return None if bad is None else f"{bad!r} is no folder"


def _named(source: Path, wanted: Sequence[str]) -> list[str]:
    """Return the whole names of these runs and experiments; raise ConfigError if one is unknown."""
    with Store(source, "look") as store:
        known = store.read(runs.all_runs)
        if not known:
            raise ConfigError("the file contains no runs", hint="name another file")
        whole = {run.exp_id: run.exp_id for run in known}
        return [whole.get(name) or store.read(runs.named, name).name for name in wanted]


def _only_experiment(source: Path, wanted: Sequence[str]) -> str:
    """Return the experiment of these runs, or of all runs; raise ConfigError if there are more."""
    with Store(source, "look") as store:
        known = store.read(runs.all_runs)
    found = {run.exp_id for run in known if not wanted or {run.name, run.exp_id} & {*wanted}}
    if len(found) > 1:
        raise ConfigError(
            f"one new name cannot stand for {len(found)} experiments: {', '.join(sorted(found))}",
            hint=f"add --run {shlex.quote(min(found))}, and import the others afterwards",
        )
    return found.pop()


def _way_out(clash: NameClashError, file: Path) -> str:
    """Return the command that imports the first of the experiments under another name."""
    name, free = next(iter(clash.free.items()))
    words = ["runs", "import", str(file), "--run", name, "--as", free]
    return f"grpo-practice {shlex.join(words)}"


def _untrusted(store: Store, names: Iterable[str]) -> list[str]:
    """Return the runs whose settings the user has not trusted, in this or in another file."""
    trust, found = user_trust(os.environ), list[str]()
    for name in names:
        stored = store.read(runs.config, name)
        if stored is not None:
            with suppress(ConfigError):  # nobody can have trusted a config that cannot be read
                if trusts(trust, stored, store.path):
                    continue
            found.append(name)
    return found
