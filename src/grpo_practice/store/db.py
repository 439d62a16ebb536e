"""Opens the one SQLite file: private, in WAL mode, migrated; failures become plain sentences."""

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice.errors import StoreError
from grpo_practice.redact import redactor

APPLICATION_ID = 0x47525043
"""`GRPC`: says whose file it is."""
MIGRATIONS = ("initial", "prices", "waves", "domains", "votes", "kinds", "fences")
"""Names of the schema's versions: `schema/1.sql` is the first one's."""
VERSION = len(MIGRATIONS)

PARTS = ("-wal", "-shm", "-journal", ".lock")
"""Endings of the names of the files that belong to a database."""

WAIT_S = 30.0
"""Longest wait for another process that is writing."""
SYNCHRONOUS = "FULL"
"""Durability of a commit; NORMAL may lose answers that were paid for when the power fails."""


def now() -> str:
    """Return the time as it is stored: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Connection(sqlite3.Connection):
    """A connection that replaces secrets in every text it is given to store or to look for."""

    path: Path
    """Name of the file for messages."""

    @override
    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql, _private(parameters))

    @override
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        return super().executemany(sql, map(_private, parameters))


def _private(parameters: Any) -> Any:
    if isinstance(parameters, dict):
        return {k: redactor.text(v) if isinstance(v, str) else v for k, v in parameters.items()}
    return [redactor.text(v) if isinstance(v, str) else v for v in parameters]


def connect(path: Path, *, wait_s: float = WAIT_S) -> Connection:
    """Open a connection in autocommit mode with our settings; any one thread may use it."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Connection)
    db.path = path
    db.row_factory = sqlite3.Row
    db.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
    # Off by default, and a setting of the connection, not of the file.
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
    return db


def prepare(path: Path, *, wait_s: float = WAIT_S) -> None:
    """Make the file ours: private, in WAL mode, at this version's schema.

    An older schema is migrated, all of it or nothing, after a copy of the file was put beside it.

    Raises:
        StoreError: It is something else, newer than this program, or cannot be written.
    """
    with explained(path):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite would make the file by the umask, readable for others.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        db = connect(path, wait_s=wait_s)
        try:
            if check_ours(db, path) < VERSION:
                _migrate(db, path)
        finally:
            db.close()


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Migrate the schema to this version; one process does it, and others wait for it."""
    from grpo_practice.store.migrate import migrate  # slow to import, and seldom needed

    # Before the transaction: the mode cannot be changed inside one.
    db.execute("PRAGMA journal_mode = WAL")
    with transaction(db):
        version = check_ours(db, path)  # another process may have been faster
        if 0 < version < VERSION:
            # With the write lock held: nobody adds to the file between the copy and the migration.
            copy(path, path.with_name(f"{path.name}.v{version}.bak"))
        migrate(db)


def check_ours(db: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of a file that is ours or empty.

    Raises:
        StoreError: It belongs to another program, or to a newer version of this one.
    """
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    empty = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if owner != APPLICATION_ID and not empty:
        raise StoreError(
            f"{path} is a database of another program", hint="name another file with --db"
        )
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer version (schema {version}, this one knows {VERSION})",
            hint="upgrade grpo-practice, or name another file with --db",
        )
    return version


def open_to_look(path: Path) -> sqlite3.Connection:
    """Open a connection that changes nothing, not even what a killed process left behind.

    Raises:
        StoreError: It is not ours, or cannot be opened.
    """
    with explained(path):
        # Only a connection that may write clears away its own log, and the one it finds with it.
        mode = "ro" if path.with_name(f"{path.name}-wal").exists() else "rw"
        name = f"{path.absolute().as_uri()}?mode={mode}"
        db = sqlite3.connect(name, uri=True, isolation_level=None)
        db.row_factory = sqlite3.Row
        # Beside the mode, which is rw where there is no log.
        db.execute("PRAGMA query_only = ON")
        db.execute(f"PRAGMA busy_timeout = {round(WAIT_S * 1000)}")
        try:
            check_ours(db, path)
        except BaseException:
            db.close()
            raise
        return db


def why_no_copy(path: Path, target: Path) -> str | None:
    """Return what speaks against a copy of the database at `target`; None when nothing does.

    The log holds answers that are in no other file yet, so it is no more to be replaced than the
    database, under whatever name; and the parts of other databases are left alone as well.
    """
    for own in (path, path.resolve()):
        for part in (own, *(own.with_name(own.name + end) for end in PARTS)):
            # Not by name: a hard link, or another way to write the path, is the same file.
            if part.exists() and target.exists() and target.samefile(part):
                return "is the database itself" if part == own else f"is a part of {path}"
    names = (target.name, Path(os.path.realpath(target)).name)
    if any(name.casefold().endswith(PARTS) for name in names):
        return "has the name of a part of a database"
    return None


def copy(path: Path, target: Path) -> None:
    """Replace `target` by a private copy of the database as it is now, or leave it as it was.

    Others may write the database meanwhile. A file of that name is replaced, a link not followed.

    Raises:
        StoreError: The database is damaged, or the copy cannot be written.
    """
    try:
        # Beside the target: a file is replaced atomically within one file system only.
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
        os.close(handle)
        try:
            with closing(open_to_look(path)) as source, closing(sqlite3.connect(temporary)) as made:
                # Not a copy of the file: part of what was saved may be in the -wal alone.
                source.backup(made)
                found = made.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise StoreError(
                    f"the database {path} is damaged ({found}); it was not copied",
                    hint="grpo-practice db check says what is wrong",
                )
            # The content before the name: after a power cut the target must not be an empty file.
            _sync(temporary)
            temporary.replace(target)
            # A new name is on disk only once its folder is.
            _sync(target.parent)
        finally:
            for file in (name, f"{name}-wal", f"{name}-shm", f"{name}-journal"):
                Path(file).unlink(missing_ok=True)
    except (sqlite3.Error, OSError) as e:
        raise explain(e, path if "malformed" in str(e) else target) from e


def _sync(path: Path) -> None:
    """Flush the file, or the folder's list of files, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Save all that the block writes, or none of it."""
    # A deferred one that reads before it writes fails at once, whatever busy_timeout says, where
    # another process has written in between.
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # For a KeyboardInterrupt, too: the next BEGIN on this connection would fail.
        if db.in_transaction:  # some failures have ended it already
            db.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise what SQLite or the file system says as a `StoreError` that names the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as e:
        raise explain(e, path) from e


def explain(error: Exception, path: Path) -> Exception:
    """Return the `StoreError` for an error of SQLite or the file system; any other as it is."""
    if isinstance(error, OSError):
        return StoreError(f"cannot use the database {path}: {error.strerror or error}")
    if not isinstance(error, sqlite3.Error):
        return error
    said = str(error)
    for sign, meaning, hint in _MEANINGS:
        if sign in said:
            return StoreError(f"the database {path} {meaning} ({said})", hint=hint)
    return StoreError(f"the database {path} failed: {said}")


_MEANINGS: tuple[tuple[str, str, str], ...] = (
    ("disk is full", "cannot grow: the disk is full", "free some space and run the command again"),
    ("readonly", "is read-only", "check the permissions of the file and of its folder"),
    ("unable to open", "cannot be opened", "check that the folder exists and can be written"),
    (
        "locked",
        "is locked by another process",
        "wait for it to end, or name another file with --db",
    ),
    (
        "malformed",
        "is damaged",
        "grpo-practice db check says what is wrong; go on with a copy made by db backup",
    ),
    ("not a database", "is not a database", "name another file with --db"),
    ("disk I/O", "cannot be read or written", "check the disk; nothing was written to it now"),
)


Row = dict[str, Any]
"""Column → value. Values reach the database by the column's name, never by their place."""


def insert(db: sqlite3.Connection, table: str, row: Row, *, more: str = "") -> int:
    """Insert a row and return its rowid; `more` is what follows, as in ON CONFLICT."""
    return int(db.execute(insertion(table, row, more=more), row).lastrowid or 0)


def insert_all(db: sqlite3.Connection, table: str, rows: Sequence[Row], *, more: str = "") -> None:
    """Insert rows that all have the columns of the first one."""
    if rows:
        # SQLite ignores names that the statement does not have: a value would be lost in silence.
        assert all(row.keys() == rows[0].keys() for row in rows), f"{table}: rows differ in columns"
        db.executemany(insertion(table, rows[0], more=more), rows)


def insertion(table: str, columns: Iterable[str], *, more: str = "") -> str:
    """Return the INSERT of a row with these columns, each value bound by its column's name."""
    names = list(columns)
    marks = ", ".join(f":{name}" for name in names)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) {more}"


def put_text(db: sqlite3.Connection, body: str, sha: bytes) -> bytes:
    """Insert the text under its hash, unless it is there; return the hash."""
    # Not INSERT OR IGNORE, which would also pass over NOT NULL and CHECK.
    insert(db, "texts", {"sha256": sha, "body": body}, more="ON CONFLICT DO NOTHING")
    return sha


def get_text(db: sqlite3.Connection, sha: bytes) -> str:
    """Return the text stored under a hash."""
    row: Any = db.execute("SELECT body FROM texts WHERE sha256 = ?", (sha,)).fetchone()
    return str(row[0])
