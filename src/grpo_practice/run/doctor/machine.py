"""Checks of this machine: Python, SQLite, and the location and permissions of the database."""

import os
import shutil
import sqlite3
import sys
from pathlib import Path

from grpo_practice.config import Environment
from grpo_practice.core import processes
from grpo_practice.core.errors import StoreError
from grpo_practice.core.findings import Finding, ok, problem, warning
from grpo_practice.store import Store
from grpo_practice.store.migrate import VERSION

OLDEST_SQLITE = (3, 37, 0)
"""First SQLite version with STRICT tables."""
LITTLE_BYTES, TOO_LITTLE_BYTES = 1 << 30, 100 << 20
WAL_RESET_FIXED = (3, 51, 3)
"""First SQLite version that loses no data if two connections reset the log (wal.html)."""
WAL_RESET_MENDED = ((3, 44, 6), (3, 50, 7))
"""First patch releases of older release lines that include the fix."""
NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse.", "vboxsf")
"""Prefixes of file system types without the shared memory that the database needs."""


def diagnose_machine(database: Path, env: Environment) -> list[Finding]:
    """Return the findings that need no configuration."""
    dotenv = f"{env.path} is read" if env.path is not None else "there is none here"
    return [
        *_programs(),
        *_database(database),
        *_place(database.absolute().parent),
        ok(".env", dotenv),
        *(warning(".env", text) for text in env.notices),
    ]


def _programs() -> list[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    limited = processes.STATM.exists()
    found = [ok("python", python if limited else f"{python}; memory of workers is not limited")]
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        text = f"{sqlite3.sqlite_version} is too old: {wanted} or newer is needed"
        error = StoreError(text, hint="use a Python that is linked with a newer SQLite")
        return [*found, problem("sqlite", error)]
    if wal_reset_bug(sqlite3.sqlite_version_info):
        text = (
            f"{sqlite3.sqlite_version} has the WAL-reset bug: two commands that write to one"
            " database at the same instant can, very rarely, damage it"
        )
        fixed = ".".join(map(str, WAL_RESET_FIXED))
        hint = (
            f"use a Python that is linked with SQLite {fixed} or newer; until then, run only one"
            " command at a time on a database, and back it up now and then with db backup"
        )
        return [*found, warning("sqlite", text, hint)]
    return [*found, ok("sqlite", sqlite3.sqlite_version)]


def wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Return whether this version can lose log entries if two connections reset the log."""
    mended = any(version[:2] == since[:2] and version >= since for since in WAL_RESET_MENDED)
    return version < WAL_RESET_FIXED and not mended


def _database(path: Path) -> list[Finding]:
    if not path.exists():
        return [ok("database", f"{path} does not exist yet; the first command creates it")]
    text = f"{path} is empty; the first command fills it"
    if path.stat().st_size:
        try:
            Store(path, "look").close()  # checks the schema, and writes nothing
        except StoreError as e:
            return [problem("database", e)]
        text = f"{path}, schema {VERSION}"
    found = [ok("database", text)]
    # Include `-wal` and `-shm`, and backups, because they hold the same data.
    beside = sorted(path.parent.glob(f"{path.name}*"))
    for file in beside:
        if file.is_file() and file.stat().st_mode & 0o077:
            text = f"{file} can be read by other users"
            found.append(warning("database", text, f"chmod 600 {file}"))
    return found


def current(path: Path) -> bool:
    """Return whether the database can be read as is: not empty, and with the current schema."""
    try:
        Store(path, "look").close()
    except StoreError:
        return False
    return True


def _place(folder: Path) -> list[Finding]:
    """Check the folder that holds, or will hold, the database."""
    # The folder may not exist yet; its first existing parent decides.
    while not folder.is_dir():
        folder = folder.parent
    found = []
    if not os.access(folder, os.W_OK):
        error = StoreError(f"{folder} is not writable", hint="name another place with --db")
        found.append(problem("folder", error))
    # With the sticky bit, as in /tmp, other users cannot replace this user's files.
    if folder.stat().st_mode & 0o022 and not folder.stat().st_mode & 0o1000:
        text = f"other users can replace the files in {folder}"
        found.append(warning("folder", text, f"chmod go-w {folder}"))
    kind = file_system(folder)
    if kind and kind.startswith(NETWORK):
        text = f"{folder} is on {kind}, where a database can be damaged if two machines use it"
        found.append(warning("folder", text, "name a place on a local disk with --db"))
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free in {folder}"
    if free < TOO_LITTLE_BYTES:
        found.append(problem("disk", StoreError(text, hint="free some space, or use --db")))
    else:
        found.append(ok("disk", text) if free >= LITTLE_BYTES else warning("disk", text))
    return found


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """Return the type of the file system that holds a folder; None if it is unknown."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    kinds = {}
    for line in lines:
        point, kind = line.split(" ")[1:3]
        kinds[Path(point.encode().decode("unicode_escape"))] = kind  # a space is written as \040
    here = folder.resolve()
    return next((kinds[place] for place in (here, *here.parents) if place in kinds), None)
