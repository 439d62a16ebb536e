"""Runs of kind `recorded`: requests that passed through `serve`, grouped by conversation."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_practice.core.calls import Message
from grpo_practice.core.errors import ConfigError, FingerprintError
from grpo_practice.core.fences import new_key
from grpo_practice.core.hashing import text_sha
from grpo_practice.core.text import folder_text
from grpo_practice.store import branches
from grpo_practice.store.db import insert, now, put_text
from grpo_practice.store.identity import diff
from grpo_practice.store.records import Branch
from grpo_practice.store.rollouts import unpack

SYSTEM = "served"
"""Key of the agent's system prompt among the branch's prompts."""


@dataclass(frozen=True, slots=True)
class RecordedSpec:
    """Spec of a recording: the run's name, and the agent it is bound to."""

    name: str
    identity: Mapping[str, Any]
    """Keys that define the agent: flat, dotted and redacted."""
    system: str
    """System prompt of the agent."""
    config_text: str
    base_dir: Path
    simulated: bool


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """Fields of a recorded request that are needed to find its continuation."""

    call_id: int
    request_hash: bytes
    slot: int
    turn: int
    nth: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counts of a recorded run."""

    requests: int
    conversations: int
    failed: int
    """Requests that got no usable answer."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The latest state of a conversation; if it forked, the branch with the newest request."""

    number: int
    messages: list[Message]
    """Messages up to the last reply."""
    requests: int


def begin(db: sqlite3.Connection, spec: RecordedSpec) -> Branch:
    """Return the run's only branch, bound to this agent; create it if necessary.

    Raises:
        ConfigError: A run of another kind has this name.
        FingerprintError: The run was recorded with a different agent.
    """
    run = db.execute("SELECT * FROM runs WHERE run_id = ?", (spec.name,)).fetchone()
    if run is None:
        return branches.load(db, _insert(db, spec))
    if run["kind"] != "recorded":
        raise ConfigError(
            f"{spec.name} is a run of kind {run['kind']}, so nothing can be recorded in it",
            hint="choose another name for --record",
        )
    row = db.execute(
        "SELECT identity FROM branches WHERE branch_id = ?", (run["head_branch"],)
    ).fetchone()
    if changes := diff(json.loads(row[0]), spec.identity):
        raise FingerprintError(
            f"{spec.name} was recorded with a different agent",
            changes,
            hint="choose another name for --record, or serve the agent of that recording",
        )
    return branches.load(db, run["head_branch"])


def _insert(db: sqlite3.Connection, spec: RecordedSpec) -> int:
    created, identity = now(), dict(spec.identity)
    run = {
        "run_id": spec.name,
        "exp_id": spec.name,
        "kind": "recorded",
        "purpose": "recorded",
        "status": "new",
        "simulated": int(spec.simulated),
        "created_at": created,
    }
    branch = {
        "run_id": spec.name,
        "cause": "start",
        "fence_key": new_key(),
        "identity": json.dumps(identity, ensure_ascii=False, sort_keys=True),
        "config_sha": put_text(db, spec.config_text, text_sha(spec.config_text)),
        "prompts": json.dumps({SYSTEM: put_text(db, spec.system, text_sha(spec.system)).hex()}),
        "base_dir": folder_text(spec.base_dir),
        "created_at": created,
    }
    insert(db, "runs", run)
    branch_id = insert(db, "branches", branch)
    db.execute("UPDATE runs SET head_branch = ? WHERE run_id = ?", (branch_id, spec.name))
    return branch_id


def recent_requests(db: sqlite3.Connection, branch_id: int, most: int) -> list[RecordedRequest]:
    """Return the last `most` answered requests of the branch, oldest first."""
    # Newest first in SQL, for the limit; conversations are rebuilt from their oldest request on.
    rows = db.execute(
        """SELECT call_id, request_hash, slot, turn, nth FROM calls WHERE branch_id = ?
            ORDER BY call_id DESC LIMIT ?""",
        (branch_id, most),
    ).fetchall()
    return [RecordedRequest(**row) for row in reversed(rows)]


def reply_of(db: sqlite3.Connection, call_id: int) -> Message:
    """Return the reply of a call."""
    row = db.execute("SELECT reply, codec FROM call_bodies WHERE call_id = ?", (call_id,))
    message: Message = unpack(*row.fetchone())
    return message


def traffic(db: sqlite3.Connection, branch_id: int) -> Traffic:
    """Count the requests, conversations and failures of the branch."""
    row = db.execute(
        """SELECT count(*) AS requests, count(DISTINCT slot) AS conversations,
             (SELECT count(*) FROM failures f WHERE f.branch_id = :branch) AS failed
             FROM calls WHERE branch_id = :branch""",
        {"branch": branch_id},
    ).fetchone()
    return Traffic(**row)


def conversations(db: sqlite3.Connection, branch_id: int) -> Iterator[Conversation]:
    """Yield the conversations of the branch in the order in which they began."""
    rows = db.execute(
        """SELECT slot, max(call_id), count(*) FROM calls WHERE branch_id = ?
            GROUP BY slot ORDER BY slot""",
        (branch_id,),
    )
    for slot, last, n in rows:
        yield Conversation(slot, _line(db, last), n)


def _line(db: sqlite3.Connection, last: int) -> list[Message]:
    """Return all messages up to a call's reply, joined from the new messages of each call."""
    parts, call_id = list[list[Message]](), last
    while call_id is not None:
        row = db.execute(
            """SELECT prev_call_id, request, reply, codec FROM calls JOIN call_bodies
                 USING (call_id) WHERE call_id = ?""",
            (call_id,),
        ).fetchone()
        codec = row["codec"]
        parts.append([*unpack(row["request"], codec), unpack(row["reply"], codec)])
        call_id = row["prev_call_id"]
    return [message for part in reversed(parts) for message in part]
