"""Runs as a person asks for them: lists, look-ups, costs, removal, and who is writing one."""

import os
import re
import socket
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from grpo_practice.errors import ConfigError
from grpo_practice.store.db import get_text, now
from grpo_practice.store.records import RunRow

_SELECT = """
SELECT r.*, (SELECT count(*) FROM v_steps s WHERE s.run_id = r.run_id) AS steps,
       (SELECT count(*) FROM v_steps s WHERE s.run_id = r.run_id
           AND s.status IN ('closed', 'merge_failed')) AS steps_closed,
       (SELECT count(*) FROM branches b WHERE b.run_id = r.run_id) AS branches
  FROM runs r
"""


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The configuration a run's newest branch was made with."""

    run: str
    text: str
    base_dir: str


@dataclass(frozen=True, slots=True)
class StageCost:
    """What the calls of one stage took, over all branches of a run."""

    stage: str
    name: str
    calls: int
    tokens_in: int | None
    tokens_cached: int | None
    """Of those in; None where no reply says so."""
    tokens_out: int | None
    uncounted: int
    """Calls without tokens: what is summed up is without theirs."""
    usd: float | None
    unpriced: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a run open."""

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
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


def every(db: sqlite3.Connection, *, children: bool = True) -> list[RunRow]:
    """All runs, oldest first; without `children`, only those that no other run made."""
    where = "" if children else "WHERE r.parent_run_id IS NULL"
    return [_run(row) for row in db.execute(f"{_SELECT} {where} ORDER BY r.rowid")]


def find(db: sqlite3.Connection, name: str) -> RunRow | None:
    """The run of that name, or None."""
    row = db.execute(f"{_SELECT} WHERE r.run_id = ?", (name,)).fetchone()
    return _run(row) if row else None


def get(db: sqlite3.Connection, name: str) -> RunRow:
    """The run of that name.

    Raises:
        ConfigError: There is none; the hint names those there are.
    """
    run = find(db, name)
    if run is None:
        names = ", ".join(r.name for r in every(db)[-8:]) or "none yet"
        raise ConfigError(f"there is no run {name!r}", hint=f"runs: {names}")
    return run


def latest(db: sqlite3.Connection, kinds: Sequence[str]) -> RunRow | None:
    """The run, among those a person started, whose command ran last."""
    marks = ",".join("?" * len(kinds))
    row = db.execute(
        f"""{_SELECT} WHERE r.kind IN ({marks}) AND r.role = ''
             ORDER BY (SELECT max(invocation_id) FROM invocations i WHERE i.run_id = r.run_id) DESC,
                      r.rowid DESC LIMIT 1""",
        tuple(kinds),
    ).fetchone()
    return _run(row) if row else None


def config(db: sqlite3.Connection, run: str) -> StoredConfig | None:
    """The stored configuration of a run's newest branch."""
    row = db.execute(
        """SELECT b.config_sha, b.base_dir FROM runs r JOIN branches b
             ON b.branch_id = r.head_branch WHERE r.run_id = ?""",
        (run,),
    ).fetchone()
    return StoredConfig(run, get_text(db, row[0]), row[1]) if row else None


def costs(db: sqlite3.Connection, run: str) -> list[StageCost]:
    """By stage and model, all branches: money spent is spent."""
    rows = db.execute(
        """SELECT stage, name, sum(calls), sum(tokens_in),
                  sum(CASE WHEN tries > 0 THEN tokens_cached END),  -- a tool is no request
                  sum(tokens_out), sum((NOT counted) * calls), sum(cost_micro) / 1e6,
                  sum((NOT priced) * calls)
             FROM call_sums JOIN invocations USING (invocation_id)
            WHERE run_id = ? GROUP BY stage, name ORDER BY min(step), stage""",
        (run,),
    )
    return [StageCost(*row) for row in rows]


def open_invocation(
    db: sqlite3.Connection, run: str, branch_id: int, *, version: str, command: str
) -> int:
    """This process is the run's holder, and the run is running; the invocation's id."""
    db.execute("UPDATE runs SET status = 'running' WHERE run_id = ?", (run,))
    cursor = db.execute(
        """INSERT INTO invocations (run_id, branch_id, version, command, pid, host, started_at)
           VALUES (?,?,?,?,?,?,?)""",
        (run, branch_id, version, command, os.getpid(), socket.gethostname(), now()),
    )
    return int(cursor.lastrowid or 0)


def close_invocation(
    db: sqlite3.Connection, invocation_id: int, *, status: str, exit_code: int, reason: str | None
) -> None:
    """The invocation has ended, and how; its run's status is `status`."""
    db.execute(
        """UPDATE runs SET status = ? WHERE run_id =
             (SELECT run_id FROM invocations WHERE invocation_id = ?)""",
        (status, invocation_id),
    )
    db.execute(
        "UPDATE invocations SET ended_at = ?, exit_code = ?, reason = ? WHERE invocation_id = ?",
        (now(), exit_code, reason, invocation_id),
    )


def holder(db: sqlite3.Connection, run: str) -> Holder | None:
    """The newest invocation of the run that has not ended."""
    return next((who for who in holders(db) if who.run == run), None)


def holders(db: sqlite3.Connection) -> list[Holder]:
    """Every invocation that has not ended, newest first; also of processes that were killed."""
    rows = db.execute(
        """SELECT run_id, pid, host, started_at FROM invocations WHERE ended_at IS NULL
            ORDER BY invocation_id DESC"""
    )
    return [Holder(*row) for row in rows]


def close_dead(db: sqlite3.Connection, run: str) -> list[Holder]:
    """Nobody has the run open; who had, and never said that it ended.

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


def last_command(db: sqlite3.Connection, run: str) -> str:
    """The command that worked on the run last, as typed but for what made it do only a part."""
    row = db.execute(
        """SELECT command FROM invocations WHERE run_id = ? AND branch_id IS NOT NULL
            ORDER BY invocation_id DESC LIMIT 1""",
        (run,),
    ).fetchone()
    return _PARTLY.sub("", row[0]) if row else ""


_PARTLY = re.compile(r" --again\b| --(?:pilot|limit)[ =]\d+")


def delete(db: sqlite3.Connection, run: str) -> list[str]:
    """The run and the runs it made are gone, with everything paid for; their names.

    What a re-judgement asked about another run's rollouts stays with that run.

    Raises:
        ConfigError: Another run, which stays, took rollouts or experiences from it.
    """
    gone = [
        row[0]
        for row in db.execute(
            """WITH RECURSIVE down(run_id) AS (SELECT :run UNION
                 SELECT r.run_id FROM runs r JOIN down d ON r.parent_run_id = d.run_id)
               SELECT run_id FROM down""",
            {"run": run},
        )
    ]
    names = ",".join("?" * len(gone))
    branches = f"(SELECT branch_id FROM branches WHERE run_id IN ({names}))"
    libraries = f"(SELECT library_id FROM libraries WHERE run_id IN ({names}))"
    users = db.execute(
        f"""SELECT DISTINCT run_id FROM libraries WHERE run_id NOT IN ({names})
             AND parent_id IN {libraries}""",
        (*gone, *gone),
    ).fetchall()
    if users:
        raise ConfigError(
            f"{run} cannot be deleted: {', '.join(u[0] for u in users)} started from its library",
            hint="delete that run first",
        )
    db.execute("PRAGMA defer_foreign_keys = ON")
    for statement in _DELETES:
        db.execute(statement.format(names=names, branches=branches, libraries=libraries), gone)
    return gone


_DELETES = (
    "DELETE FROM verdicts WHERE rollout_id IN"
    " (SELECT rollout_id FROM rollouts WHERE branch_id IN {branches})",
    "DELETE FROM rollout_bodies WHERE rollout_id IN"
    " (SELECT rollout_id FROM rollouts WHERE branch_id IN {branches})",
    "DELETE FROM rollouts WHERE branch_id IN {branches}",
    "DELETE FROM groups WHERE branch_id IN {branches}",
    "DELETE FROM lessons WHERE branch_id IN {branches}",
    "DELETE FROM library_items WHERE library_id IN {libraries}",
    "DELETE FROM experience_texts WHERE experience_id IN"
    " (SELECT experience_id FROM experiences WHERE run_id IN ({names}))",
    "DELETE FROM operations WHERE branch_id IN {branches}",
    "DELETE FROM experiences WHERE run_id IN ({names})",
    "DELETE FROM steps WHERE branch_id IN {branches}",
    "DELETE FROM call_bodies WHERE call_id IN"
    " (SELECT call_id FROM calls WHERE branch_id IN {branches})",
    "DELETE FROM calls WHERE branch_id IN {branches}",
    "DELETE FROM failures WHERE branch_id IN {branches}",
    # What is left of calls and failures was made for another run's rollouts, which stays: it was
    # paid for, and the run it was made for keeps it.
    """UPDATE invocations SET branch_id = NULL, run_id = (
         SELECT b.run_id FROM (SELECT branch_id, invocation_id FROM calls
             UNION ALL SELECT branch_id, invocation_id FROM failures) paid
           JOIN branches b USING (branch_id) WHERE paid.invocation_id = invocations.invocation_id)
       WHERE run_id IN ({names}) AND (
         invocation_id IN (SELECT invocation_id FROM calls)
         OR invocation_id IN (SELECT invocation_id FROM failures))""",
    "DELETE FROM invocations WHERE run_id IN ({names})",
    "DELETE FROM libraries WHERE run_id IN ({names})",
    "DELETE FROM branches WHERE run_id IN ({names})",
    "DELETE FROM runs WHERE run_id IN ({names})",
)


def _run(row: sqlite3.Row) -> RunRow:
    return RunRow(
        name=row["run_id"],
        exp_id=row["exp_id"],
        kind=row["kind"],
        role=row["role"],
        parent_run=row["parent_run_id"],
        parent_step=row["parent_step"],
        head_branch=row["head_branch"],
        status=row["status"],
        simulated=bool(row["simulated"]),
        created_at=row["created_at"],
        steps=row["steps"],
        steps_closed=row["steps_closed"],
        branches=row["branches"],
    )
