"""The stored calls: each answer is committed before it is used, and looked up by its request."""

import sqlite3
import zlib
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict

from grpo_practice import __version__
from grpo_practice.core.calls import Address, Entry, Reply
from grpo_practice.core.errors import EndpointError
from grpo_practice.core.hashing import canon, text_sha
from grpo_practice.core.redact import redactor
from grpo_practice.core.stages import STAGES, Stage
from grpo_practice.store.db import Connection, Row, explained, insert, insert_all, now, put_text
from grpo_practice.store.reading import read_only
from grpo_practice.store.rollouts import unpack, usage_of
from grpo_practice.store.writer import Writer

COMPRESS_FROM = 512
"""Minimum number of bytes for which a body is compressed."""
REMEMBERED = 256
"""Number of steps for which the ledger remembers whether they had earlier calls."""


class SqlLedger:
    """The ledger of one invocation (a `calls.Ledger`)."""

    def __init__(
        self,
        reads: Connection,
        writer: Writer | None,
        invocation_id: int,
        reuses: Mapping[int, tuple[int, ...]],
    ) -> None:
        """Open the ledger; `reuses` maps a branch to the branches whose calls it may reuse.

        Without a writer, the ledger is read-only.
        """
        self._reads, self._writes = reads, writer
        self._invocation_id, self._reuses = invocation_id, reuses
        self._resumed = _resumed(reads, invocation_id)
        self._begun: dict[tuple[int, int], set[tuple[int, int, Stage]] | None] = {}
        """(branch_id, step) → addresses of calls added by this ledger; None if the step had calls
        before.
        """
        self._served = set[int]()
        """IDs of stored calls that answered a request again."""
        self.unused: Counter[str] = Counter()
        """Reason why stored calls of an unfinished scope were unusable → number of calls."""

    @property
    def _writer(self) -> Writer:
        if self._writes is None:
            raise read_only(self._reads.path)
        return self._writes

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        """Return the stored reply, marked `replayed`, or None."""
        with explained(self._reads.path):
            if not self._may_be_there(address):
                return None
            # The reading connection only sees commits, and `put` returns after
            # its commit, so every acknowledged call is found.
            reply = self._find(address, request_hash, nth)
        if reply is not None:
            self._served.add(reply.call_id)
        return reply

    def _may_be_there(self, a: Address) -> bool:
        """Return False if no call can have this address, which saves a query."""
        # Another run that scores this run's rollouts may add judge calls at any time.
        if a.stage == "judge" or self._reuses.get(a.branch_id):
            return True
        step = (a.branch_id, a.step)
        if step not in self._begun:
            # Forgetting the oldest step costs one query if it is needed again.
            while len(self._begun) >= REMEMBERED:
                del self._begun[next(iter(self._begun))]
            row = self._reads.execute(
                "SELECT EXISTS (SELECT 1 FROM calls WHERE branch_id = ? AND step = ?)", step
            ).fetchone()
            # Asking once is enough, because this process holds the run's lock and no other process
            # adds calls to its steps.
            self._begun[step] = None if row[0] else set()
        asked = self._begun[step]
        return asked is None or (a.slot, a.attempt, a.stage) in asked

    def _find(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        asked = {**asdict(address), "request_hash": request_hash, "nth": nth}
        # A lender's agent calls were made for equal addresses, but its judge may be another one.
        asked["me"] = self._invocation_id
        # This run's branch comes first, so that a lender's answer never replaces one that this run
        # paid for.
        for branch_id in (address.branch_id, *self._reuses.get(address.branch_id, ())):
            row = self._reads.execute(
                """SELECT c.*, b.reply, b.codec FROM calls c JOIN call_bodies b USING (call_id)
                    WHERE branch_id = :branch_id AND step = :step AND slot = :slot
                      AND attempt = :attempt AND stage = :stage AND request_hash = :request_hash
                      AND nth = :nth AND (:own OR stage <> 'judge' OR EXISTS (
                        SELECT 1 FROM invocations i JOIN invocations me ON me.invocation_id = :me
                         WHERE i.invocation_id = c.invocation_id
                           AND (i.run_id = me.run_id OR i.judge_at = me.judge_at)))""",
                {**asked, "branch_id": branch_id, "own": branch_id == address.branch_id},
            ).fetchone()
            if row is not None:
                return _reply(row)
        return None

    async def put(self, entry: Entry) -> int:
        """Commit the entry, even if the waiting caller is cancelled, and return its `call_id`."""
        a = entry.address
        # Note the address before the commit, so that a request made in the meantime looks for this
        # entry.
        if (asked := self._begun.get((a.branch_id, a.step))) is not None:
            asked.add((a.slot, a.attempt, a.stage))
        call_id, unused = await self._writer.row(self._insert, entry)
        if unused is not None:
            self.unused[unused] += 1
        return call_id

    def _insert(
        self, db: sqlite3.Connection, entries: Sequence[Entry]
    ) -> list[tuple[int, str | None]]:
        """Insert entries; return each call_id, and why an earlier call could not be reused."""
        me = self._invocation_id
        served = self._served
        unused = [_unused(db, entry, me, served) if self._resumed else None for entry in entries]
        return list(zip(_insert(db, entries, me), unused, strict=True))

    def fail(self, address: Address, error: EndpointError) -> None:
        """Store a request that got no usable answer; it is on disk once any later `put` is."""
        row = {
            "invocation_id": self._invocation_id,
            **asdict(address),
            "kind": error.kind,
            "http_status": error.status,
            "broken": error.broken,
            "message": str(error),
            "tries": error.tries,
            "maybe_paid": int(error.maybe_paid),
            "created_at": now(),
        }
        # Not awaited, because this is also called during a cancellation, which must not wait.
        self._writer.submit(lambda db: insert(db, "failures", row))


def _resumed(db: sqlite3.Connection, invocation_id: int) -> bool:
    """Return True if an earlier invocation worked on the run, so that calls may be stored."""
    row = db.execute(
        """SELECT EXISTS (SELECT 1 FROM invocations i JOIN invocations me
             ON me.invocation_id = ? AND i.run_id = me.run_id WHERE i.invocation_id < ?)""",
        (invocation_id, invocation_id),
    ).fetchone()
    return bool(row[0])


def _unused(
    db: sqlite3.Connection, entry: Entry, invocation_id: int, served: Container[int]
) -> str | None:
    """Return why an earlier invocation's call at this address was unusable, or None.

    Calls of other runs and of other verify functions do not count, nor do calls of a repeated
    comparison. A call that answered another request in the same batch counts as used.
    """
    a = entry.address
    if a.stage == "tool":  # only repeated if the preceding model call was, and that one is counted
        return None
    rows = db.execute(
        """SELECT call_id, params, i.version FROM calls JOIN call_bodies USING (call_id)
             JOIN invocations i USING (invocation_id)
             JOIN branches theirs ON theirs.branch_id = i.branch_id
             JOIN invocations me ON me.invocation_id = ?
             JOIN branches mine ON mine.branch_id = me.branch_id
            WHERE calls.branch_id = ? AND step = ? AND slot = ? AND attempt = ? AND stage = ?
              AND turn = ? AND i.invocation_id <> me.invocation_id AND i.run_id = me.run_id
              AND (stage <> 'judge' OR theirs.verifier_id IS mine.verifier_id)
              AND NOT (role = 'teacher' AND EXISTS (SELECT 1 FROM steps s WHERE s.stats NOT NULL
                AND (s.branch_id, s.step) = (calls.branch_id, calls.step)))""",
        (invocation_id, a.branch_id, a.step, a.slot, a.attempt, a.stage, entry.turn),
    )
    # Among concurrent requests, one may have used the answer stored with another's turn.
    row = next((row for row in rows if row["call_id"] not in served), None)
    if row is None:
        return None
    what = "settings" if row["params"] != text_sha(entry.head.decode()) else "messages"
    made = "" if row["version"] == __version__ else f" (they were made by version {row['version']})"
    return f"the {what} of their requests have changed{made}"


def _insert(db: sqlite3.Connection, entries: Sequence[Entry], invocation_id: int) -> range:
    """Insert the calls and their bodies; return their IDs in order."""
    # executemany() returns no ids. These are free: the transaction holds the write lock.
    first = db.execute("SELECT coalesce(max(call_id), 0) + 1 FROM calls").fetchone()[0]
    calls = dict(zip(range(first, first + len(entries)), entries, strict=True))
    made = {"invocation_id": invocation_id, "created_at": now()}
    insert_all(db, "calls", [{"call_id": i, **_call(e), **made} for i, e in calls.items()])
    heads = {entry.head: entry.head.decode() for entry in entries}
    params = {head: put_text(db, text, text_sha(text)) for head, text in heads.items()}
    bodies = [{"call_id": i, "params": params[e.head], **_body(e)} for i, e in calls.items()]
    insert_all(db, "call_bodies", bodies)
    return range(first, first + len(entries))


def _call(entry: Entry) -> Row:
    reply = entry.reply
    return {
        **asdict(entry.address),
        "request_hash": entry.request_hash,
        "nth": entry.nth,
        "turn": entry.turn,
        "prev_call_id": entry.prev_call_id,
        "role": STAGES[entry.address.stage].role,
        "name": entry.name,
        "answered_by": reply.answered_by,
        "finish": reply.finish,
        **asdict(reply.usage),
        "price": reply.price,
        "seeded": int(reply.seeded),
        "tries": reply.tries,
        "seconds": reply.seconds,
        "waited_s": reply.waited_s,
    }


def _body(entry: Entry) -> Row:
    """Return request, reply and codec, with secrets redacted."""
    message = canon(entry.reply.message)
    codec = int(len(entry.messages) + len(message) >= COMPRESS_FROM)
    return {"request": _pack(entry.messages, codec), "reply": _pack(message, codec), "codec": codec}


def _pack(body: bytes, codec: int) -> bytes:
    # Redacted here, because `db.Connection` only redacts text, and a body is a blob.
    body = redactor.text(body.decode()).encode()
    # Level 1, since the only writer thread compresses and every queued `put` waits for it.
    return zlib.compress(body, 1) if codec else body


def _reply(row: sqlite3.Row) -> Reply:
    return Reply(
        message=unpack(row["reply"], row["codec"]),
        finish=row["finish"],
        usage=usage_of(row),
        answered_by=row["answered_by"] or "",
        price=row["price"],
        seeded=bool(row["seeded"]),
        tries=row["tries"],
        seconds=row["seconds"],
        waited_s=row["waited_s"],
        replayed=True,
        call_id=row["call_id"],
    )
