"""Every answered call, committed before it is used, and found again by where and what was asked."""

import sqlite3
import zlib
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict

from grpo_practice import __version__
from grpo_practice.calls import Address, Entry, Reply
from grpo_practice.canonical import canon, text_sha
from grpo_practice.errors import EndpointError
from grpo_practice.redact import redactor
from grpo_practice.stages import STAGES, Stage
from grpo_practice.store.db import Connection, Row, explained, insert, insert_all, now, put_text
from grpo_practice.store.reading import read_only
from grpo_practice.store.rollouts import unpack, usage_of
from grpo_practice.store.writer import Writer

COMPRESS_FROM = 512
"""Bytes from which a body is compressed."""
REMEMBERED = 256
"""Steps of which it is known at once that nothing was asked in them before."""


class SqlLedger:
    """The ledger of one invocation (a `calls.Ledger`)."""

    def __init__(
        self,
        reads: Connection,
        writer: Writer | None,
        invocation_id: int,
        reuses: Mapping[int, tuple[int, ...]],
    ) -> None:
        """Open the ledger; `reuses` maps a branch to those whose calls may answer for its own.

        Without a writer, nothing can be put into it.
        """
        self._reads, self._writes = reads, writer
        self._invocation_id, self._reuses = invocation_id, reuses
        self._resumed = _resumed(reads, invocation_id)
        self._begun: dict[tuple[int, int], set[tuple[int, int, Stage]] | None] = {}
        """(branch_id, step) → where in it calls were put since; None where some were before."""
        self._served = set[int]()
        """The stored calls that answered again."""
        self.unused: Counter[str] = Counter()
        """Reason why stored calls of an unfinished scope were of no use → number of calls."""

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
            # By a connection of its own, which sees commits only: what
            # `put` has acknowledged is there.
            reply = self._find(address, request_hash, nth)
        if reply is not None:
            self._served.add(reply.call_id)
        return reply

    def _may_be_there(self, a: Address) -> bool:
        """Return False when no call has this address, which spares asking the database."""
        # Another run that scores this one's rollouts adds what it asks its judge at any time.
        if a.stage == "judge" or self._reuses.get(a.branch_id):
            return True
        step = (a.branch_id, a.step)
        if step not in self._begun:
            while len(self._begun) >= REMEMBERED:
                del self._begun[next(iter(self._begun))]
            row = self._reads.execute(
                "SELECT EXISTS (SELECT 1 FROM calls WHERE branch_id = ? AND step = ?)", step
            ).fetchone()
            # Once is enough: whoever writes a run holds its lock, so
            # nobody else adds calls to its steps.
            self._begun[step] = None if row[0] else set()
        asked = self._begun[step]
        return asked is None or (a.slot, a.attempt, a.stage) in asked

    def _find(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        asked = {**asdict(address), "request_hash": request_hash, "nth": nth}
        # A lender was asked at this run's address, but another judge may have scored it.
        asked["me"] = self._invocation_id
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
        """Commit the entry, also when whoever waits for that is cancelled; return its `call_id`."""
        a = entry.address
        # Before the commit: a request made meanwhile has to look for this one.
        if (asked := self._begun.get((a.branch_id, a.step))) is not None:
            asked.add((a.slot, a.attempt, a.stage))
        call_id, unused = await self._writer.row(self._insert, entry)
        if unused is not None:
            self.unused[unused] += 1
        return call_id

    def _insert(
        self, db: sqlite3.Connection, entries: Sequence[Entry]
    ) -> list[tuple[int, str | None]]:
        """Insert entries; return each call_id, and why an earlier call did not serve there."""
        me = self._invocation_id
        served = self._served
        unused = [_unused(db, entry, me, served) if self._resumed else None for entry in entries]
        return list(zip(_insert(db, entries, me), unused, strict=True))

    def fail(self, address: Address, error: EndpointError) -> None:
        """Store a request without a usable answer: on disk once anything put after it is."""
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
        # Nobody waits for it: this is called where a cancellation passes,
        # which must not wait either.
        self._writer.submit(lambda db: insert(db, "failures", row))


def _resumed(db: sqlite3.Connection, invocation_id: int) -> bool:
    """Return True when an earlier invocation worked on the run, so that its calls may be there."""
    row = db.execute(
        """SELECT EXISTS (SELECT 1 FROM invocations i JOIN invocations me
             ON me.invocation_id = ? AND i.run_id = me.run_id WHERE i.invocation_id < ?)""",
        (invocation_id, invocation_id),
    ).fetchone()
    return bool(row[0])


def _unused(
    db: sqlite3.Connection, entry: Entry, invocation_id: int, served: Container[int]
) -> str | None:
    """Return why the call an earlier invocation made here did not serve; None without one.

    One that another run made here, or that another verify function asked, was not meant to; nor
    was one of a comparison that is repeated. One that answered another request, of those made at
    once, has served.
    """
    a = entry.address
    if a.stage == "tool":  # asked again only where what it was asked by was
        return None
    rows = db.execute(
        """SELECT call_id, params, i.version FROM calls JOIN call_bodies USING (call_id)
             JOIN invocations i USING (invocation_id)
             JOIN branches theirs ON theirs.branch_id = i.branch_id
             JOIN invocations me ON me.invocation_id = ?
             JOIN branches mine ON mine.branch_id = me.branch_id
            WHERE calls.branch_id = ? AND step = ? AND slot = ? AND attempt = ? AND stage = ?
              AND turn = ? AND i.invocation_id <> me.invocation_id AND i.run_id = me.run_id
              AND (stage <> 'judge' OR theirs.judge_id IS mine.judge_id)
              AND NOT (role = 'teacher' AND EXISTS (SELECT 1 FROM steps s WHERE s.stats NOT NULL
                AND (s.branch_id, s.step) = (calls.branch_id, calls.step)))""",
        (invocation_id, a.branch_id, a.step, a.slot, a.attempt, a.stage, entry.turn),
    )
    # Of requests made at once, one may have got the answer stored with another's turn.
    row = next((row for row in rows if row["call_id"] not in served), None)
    if row is None:
        return None
    what = "settings" if row["params"] != text_sha(entry.head.decode()) else "messages"
    made = "" if row["version"] == __version__ else f" (they were made by version {row['version']})"
    return f"the {what} of their requests are no longer the same{made}"


def _insert(db: sqlite3.Connection, entries: Sequence[Entry], invocation_id: int) -> range:
    """Insert the calls and their bodies; return their ids, in order."""
    # executemany() gives no ids. Nobody else can take these: the transaction has the write lock.
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
    }


def _body(entry: Entry) -> Row:
    """Return request, reply and codec, without secrets."""
    message = canon(entry.reply.message)
    codec = int(len(entry.messages) + len(message) >= COMPRESS_FROM)
    return {"request": _pack(entry.messages, codec), "reply": _pack(message, codec), "codec": codec}


def _pack(body: bytes, codec: int) -> bytes:
    # Here, since `db.Connection` replaces secrets in text only, and a body is a blob.
    body = redactor.text(body.decode()).encode()
    # Level 1: the one writer thread compresses, and every `put` in the queue waits for it.
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
        replayed=True,
        call_id=row["call_id"],
    )
