"""Invocations: the commands that work on a run, when they started and how they ended."""

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
        """Whether its process may still be running."""
        # A process id of another machine means nothing on this one.
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # The process exists and belongs to another user.
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
    """Insert an invocation by this process, which then holds the running run; return its ID.

    Without a branch, the invocation only makes side requests, and the run does not count as
    running. For `addresses`, see `RunSpec`.
    """
    # A side request, such as one for the arm `direct`, must not mark a finished run as running.
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
    """Return the hash of an address that the database stores: 16 bytes."""
    (salt,) = db.execute("SELECT salt FROM address_salt").fetchone()
    return _slow_hash(address, salt)


@cache
def _slow_hash(text: str, salt: bytes) -> bytes:
    # An address may contain a short secret, which could be guessed from a fast hash.
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
    """Store how the invocation ended, and the run's new `status`, if any.

    `go_on` replaces the stored command if that command would not continue the run.
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
    """Return the newest unfinished invocation of the run."""
    return next((who for who in holders(db) if who.run == run), None)


def holders(db: sqlite3.Connection) -> list[Holder]:
    """Return all unfinished invocations, newest first; some processes may have been killed."""
    # Newest first: after a crash and a restart, the living process is the last one.
    rows = db.execute(
        """SELECT run_id AS run, pid, host, started_at FROM invocations WHERE ended_at IS NULL
            ORDER BY invocation_id DESC"""
    )
    return [Holder(**row) for row in rows]


def close_dead(db: sqlite3.Connection, run: str) -> list[Holder]:
    """Close the run's open invocations, whose processes died; return them.

    Only the holder of the run's lock may call this: because it holds the lock, those processes must
    have died. The invocations end at the time of this call, with no exit code and the reason
    `died`.
    """
    dead = [who for who in holders(db) if who.run == run]
    db.execute(
        """UPDATE invocations SET ended_at = ?, reason = 'died'
            WHERE run_id = ? AND ended_at IS NULL""",
        (now(), run),
    )
    return dead
