"""Opens the SQLite file, private and in WAL mode, and explains failures in plain sentences."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from typing_extensions import override

from grpo_practice.core.errors import StoreError
from grpo_practice.core.hashing import clean
from grpo_practice.core.redact import redactor
from grpo_practice.store.migrate import APPLICATION_ID, VERSION, make_tables, migrate
from grpo_practice.store.shape import check_shape
from grpo_practice.store.typed_rows import TypedConnection

DEVELOPED = 12
"""Largest schema number of development versions; their files are refused, not migrated."""

PARTS = ("-wal", "-shm", "-journal", ".lock")
"""Suffixes of the files that belong to a database."""

BREATH = 500_000
"""Number of SQLite instructions between two checks for a signal that ends a query: about 10 ms."""
DAMAGED_HINT = "use a copy made by db backup; to see the details: grpo-practice db check"
WAIT_S = 30.0
"""Maximum wait for another process that is writing, in seconds."""
SYNCHRONOUS = "FULL"
"""Durability of commits; with NORMAL, a power failure may lose answers that were paid for."""


def now() -> str:
    """Return the current time in its stored form: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Connection(TypedConnection):
    """A connection that redacts secrets in every text parameter, for storage and for searches."""

    @override
    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self.typed(super().execute(sql, _private(parameters)))

    @override
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        return super().executemany(sql, map(_private, parameters))


def _private(parameters: Any) -> Any:
    if isinstance(parameters, dict):
        return {k: _storable(v) if isinstance(v, str) else v for k, v in parameters.items()}
    return [_storable(v) if isinstance(v, str) else v for v in parameters]


def _storable(text: str) -> str:
    text = redactor.text(text)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # a file name in a command or an origin need not be UTF-8
        return clean(text)
    return text


def connect(path: Path, *, wait_s: float = WAIT_S, mode: str = "") -> Connection:
    """Open a connection in autocommit mode with our settings; any single thread may use it.

    `mode` is the query of an SQLite URI, such as `mode=ro`.
    """
    # check_same_thread: the writer's connection is opened in one thread and used in another.
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}" if mode else path,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
        uri=bool(mode),
    )
    db.path = path
    db.row_factory = sqlite3.Row
    # Python only handles signals between bytecodes: without this callback, Ctrl-C would wait for
    # the end of a query, which a foreign database can delay forever.
    db.set_progress_handler(lambda: 0, BREATH)
    try:
        db.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
        # Views and triggers in a foreign file must not call functions with side effects.
        db.execute("PRAGMA trusted_schema = OFF")
        # Off by default, and must be set on every connection, since the file does not store it.
        db.execute("PRAGMA foreign_keys = ON")
        db.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        # On macOS, a commit would otherwise only reach the memory of the disk.
        db.execute("PRAGMA fullfsync = ON")
    except BaseException:
        db.close()
        raise
    return db


def make(path: Path) -> None:
    """Create an empty private file, and its folder, unless the file exists.

    Raises:
        StoreError: The file cannot be created, or is a folder, a device or similar.
    """
    with explained(path):
        if path.exists() and not path.is_file():
            raise StoreError(
                f"the database {path} cannot be opened: it is not a regular file",
                hint="name another file with --db",
            )
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite would create the file with the umask, so that others could read it.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def prepare(path: Path, *, wait_s: float = WAIT_S) -> None:
    """Turn the file into a database of this program: private, in WAL mode, with this schema.

    Raises:
        StoreError: The file is not such a database, has another schema, or cannot be written.
    """
    make(path)
    with explained(path):
        db = connect(path, wait_s=wait_s)
        try:
            if check_ours(db, path) < VERSION:
                _use_wal(db, wait_s)
                _migrate(db, path)
        finally:
            db.close()


def in_memory(path: Path) -> Connection:
    """Open an in-memory database without rows; `path` is its name in messages."""
    db = connect(Path(":memory:"))
    make_tables(db)
    db.path = path
    return db


def _use_wal(db: sqlite3.Connection, wait_s: float) -> None:
    """Switch the file to WAL mode, which is impossible in a transaction.

    If other processes are switching it as well, wait for them.
    """
    until = monotonic() + wait_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as e:
            # SQLite ignores busy_timeout here and fails immediately.
            if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
            sleep(0.01)
        else:
            return


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Migrate the schema to this version; one process migrates, and others wait for it."""
    with transaction(db):
        if check_ours(db, path) < VERSION:  # another process may have been faster
            migrate(db)


def check_ours(db: sqlite3.Connection, path: Path, *, whole: bool = True) -> int:
    """Return the schema version of a file that is ours or empty.

    Args:
        db: The open file.
        path: Its name in messages.
        whole: Whether its schema and branches must be exactly as this program creates them. Use
            False for a file that `open_to_look` has already checked.

    Raises:
        StoreError: The file belongs to another program or another version of this program, or its
            schema was changed.
    """
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    empty = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    # An empty file has no application_id yet, and may become ours.
    if owner != APPLICATION_ID and not empty:
        raise StoreError(
            f"{path} is a database of another program", hint="name another file with --db"
        )
    if version < 0 or VERSION < version <= DEVELOPED:
        raise StoreError(
            f"{path} was made by a development version (schema {version}; this"
            f" version supports schema {VERSION})",
            hint="keep using that version for it, or start a new file with --db",
        )
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer version (schema {version}; this"
            f" version supports schema {VERSION})",
            hint="upgrade grpo-practice, or name another file with --db",
        )
    if version and whole:
        check_shape(db, path)
    return version


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Save all writes made in the block, or none of them if it raises an error."""
    # A deferred transaction that reads before it writes fails immediately, despite busy_timeout,
    # if another process has written in between.
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # Roll back after a KeyboardInterrupt, too; otherwise the next BEGIN on this connection
        # would fail.
        if db.in_transaction:  # some failures have already ended it
            db.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert errors from SQLite or the file system to a `StoreError` that names the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as e:
        raise explain(e, path) from e


def is_interrupted(error: BaseException) -> bool:
    """Return True for the error of a query that a signal or `interrupt` has ended."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def explain(error: Exception, path: Path) -> BaseException:
    """Return a `StoreError` for an error from SQLite or the file system, any other error as it is.

    For a query that a signal interrupted, return a KeyboardInterrupt, because the sqlite3 module
    swallows the original one.
    """
    if isinstance(error, OSError):
        return StoreError(f"cannot use the database {path}: {error.strerror or error}")
    if not isinstance(error, sqlite3.Error):
        return error
    if is_interrupted(error):
        return KeyboardInterrupt()
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
    *(
        (sign, "is damaged", DAMAGED_HINT)
        for sign in ("malformed", "overflow", "Could not decode", "cannot hold BLOB")
    ),
    ("not a database", "is not a database", "name another file with --db"),
    ("disk I/O", "cannot be read or written", "check the disk; nothing was written this time"),
)


Row = dict[str, Any]
"""Column → value. Values are bound by column name, never by position."""


def insert(db: sqlite3.Connection, table: str, row: Row, *, more: str = "") -> int:
    """Insert a row and return its rowid; `more` is appended to the SQL, such as ON CONFLICT."""
    return int(db.execute(insertion(table, row, more=more), row).lastrowid or 0)


def insert_all(db: sqlite3.Connection, table: str, rows: Sequence[Row], *, more: str = "") -> int:
    """Insert rows with the same columns; return the number of inserted rows."""
    inserted = 0
    if rows:
        # SQLite ignores names that the statement lacks, which would silently lose a value.
        assert all(row.keys() == rows[0].keys() for row in rows), f"{table}: rows differ in columns"
        inserted = db.executemany(insertion(table, rows[0], more=more), rows).rowcount
    return inserted


def insertion(table: str, columns: Iterable[str], *, more: str = "") -> str:
    """Return the INSERT statement for a row with these columns, with each value bound by name."""
    names = list(columns)
    marks = ", ".join(f":{name}" for name in names)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) {more}"


def put_text(db: sqlite3.Connection, body: str, sha: bytes) -> bytes:
    """Insert the text under its hash, unless it exists; return the hash."""
    # Not INSERT OR IGNORE, which would also ignore violations of NOT NULL and CHECK.
    insert(db, "texts", {"sha256": sha, "body": body}, more="ON CONFLICT DO NOTHING")
    return sha


def get_text(db: sqlite3.Connection, sha: bytes) -> str:
    """Return the text stored under a hash."""
    row: Any = db.execute("SELECT body FROM texts WHERE sha256 = ?", (sha,)).fetchone()
    return str(row[0])
