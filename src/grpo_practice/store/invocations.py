"""Invocations: which command works on a run, since when, and how it ended."""

import hashlib
import os
import socket
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from typing_extensions import override

from grpo_practice.store.db import insert, now


@dataclass(frozen=True, slots=True)
class Holder:
    """Process that has a run open."""

    run: str
    pid: int
    host: str
    started_at: str

    @override
    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.started_at}"

    @property
    def may_live(self) -> bool:
        """False when its process is known to have ended."""
        # Another machine's process numbers say nothing here.
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # It lives, as another user's.
            pass
        return True


def open_invocation(
    db: sqlite3.Connection,
    run: str,
    branch_id: int | None,
    *,
    version: str,
    command: str,
    addresses: Mapping[str, str] | None = None,
) -> int:
    """Insert an invocation of this process as the running run's holder; return its id.

    Without a branch it asks something on the side, and the run is not running. For `addresses`,
    see `RunSpec`.
    """
    if branch_id is not None:
        db.execute("UPDATE runs SET status = 'running' WHERE run_id = ?", (run,))
    row = {
        "run_id": run,
        "branch_id": branch_id,
        "version": version,
        "command": command,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started_at": now(),
        **{column: address_hash(db, address) for column, address in (addresses or {}).items()},
    }
    return insert(db, "invocations", row)


def address_hash(db: sqlite3.Connection, address: str) -> bytes:
    """Return the hash that the database stores for an address: 16 bytes."""
    (salt,) = db.execute("SELECT salt FROM address_salt").fetchone()
    return _slow_hash(address, salt)


@cache
def _slow_hash(text: str, salt: bytes) -> bytes:
    # An address may hold a short secret, which a fast hash would give away to guesses.
    return hashlib.scrypt(text.encode(), salt=salt, n=2**14, r=8, p=1, dklen=16)


def close_invocation(
    db: sqlite3.Connection,
    invocation_id: int,
    *,
    status: str | None,
    exit_code: int,
    reason: str | None,
    go_on: str | None = None,
) -> None:
    """Store how the invocation ended; its run gets `status`, if any.

    `go_on` takes the place of the command where that would not go on with the run.
    """
    db.execute(
        """UPDATE runs SET status = coalesce(?, status) WHERE run_id =
             (SELECT run_id FROM invocations WHERE invocation_id = ?)""",
        (status, invocation_id),
    )
    db.execute(
        """UPDATE invocations SET ended_at = ?, exit_code = ?, reason = ?,
                  command = coalesce(?, command) WHERE invocation_id = ?""",
        (now(), exit_code, reason, go_on, invocation_id),
    )


def holder(db: sqlite3.Connection, run: str) -> Holder | None:
    """Return the newest invocation of the run that has not ended."""
    return next((who for who in holders(db) if who.run == run), None)


def holders(db: sqlite3.Connection) -> list[Holder]:
    """Return every invocation that has not ended, newest first; also of killed processes."""
    rows = db.execute(
        """SELECT run_id AS run, pid, host, started_at FROM invocations WHERE ended_at IS NULL
            ORDER BY invocation_id DESC"""
    )
    return [Holder(**row) for row in rows]


def close_dead(db: sqlite3.Connection, run: str) -> list[Holder]:
    """End the run's open invocations, whose processes died; return them.

    Only for whoever holds the run's lock: that a process has not ended in order is known by that.
    Such an invocation ends when it is found out, with no exit code and the reason `died`.
    """
    dead = [who for who in holders(db) if who.run == run]
    db.execute(
        """UPDATE invocations SET ended_at = ?, reason = 'died'
            WHERE run_id = ? AND ended_at IS NULL""",
        (now(), run),
    )
    return dead
