"""Every answered call, committed before it is used, and found again by where and what was asked."""

import asyncio
import sqlite3
import zlib
from collections import Counter
from collections.abc import Mapping

from grpo_practice import __version__
from grpo_practice.calls import ROLE_OF, Address, Entry, Reply
from grpo_practice.canonical import canon, text_sha
from grpo_practice.errors import EndpointError
from grpo_practice.redact import redactor
from grpo_practice.store.db import explained, now, put_text
from grpo_practice.store.rollouts import unpack, usage_of
from grpo_practice.store.writer import Writer

COMPRESS_FROM = 512
"""Bytes from which a body is compressed."""


class SqlLedger:
    """The ledger of one invocation (a `calls.Ledger`)."""

    def __init__(
        self,
        reads: sqlite3.Connection,
        writer: Writer,
        invocation_id: int,
        reuses: Mapping[int, tuple[int, ...]],
    ) -> None:
        """`reuses`: for a branch, the branches whose calls may answer for its own."""
        self._reads, self._writer = reads, writer
        self._invocation_id, self._reuses = invocation_id, reuses
        self._resumed = _resumed(reads, invocation_id)
        self.unused: Counter[str] = Counter()
        """Why stored calls of an unfinished scope could not be used again → how many."""

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        """The stored reply, marked `replayed`, or None."""
        with explained(self._writer.path):
            return self._found(address, request_hash, nth)

    def _found(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        for branch_id in (address.branch_id, *self._reuses.get(address.branch_id, ())):
            row = self._reads.execute(
                """SELECT c.*, b.reply, b.codec FROM calls c JOIN call_bodies b USING (call_id)
                    WHERE branch_id = ? AND step = ? AND slot = ? AND attempt = ? AND stage = ?
                      AND request_hash = ? AND nth = ?""",
                (
                    branch_id,
                    address.step,
                    address.slot,
                    address.attempt,
                    address.stage,
                    request_hash,
                    nth,
                ),
            ).fetchone()
            if row is not None:
                return _reply(row)
        return None

    async def put(self, entry: Entry) -> int:
        """Commit the entry, also where whoever waits for that is cancelled; its `call_id`."""
        me, resumed = self._invocation_id, self._resumed

        def work(db: sqlite3.Connection) -> tuple[int, str | None]:
            unused = _unused(db, entry, me) if resumed else None
            return _insert(db, entry, me), unused

        call_id, unused = await asyncio.wrap_future(self._writer.submit(work))
        if unused is not None:
            self.unused[unused] += 1
        return call_id

    def fail(self, address: Address, error: EndpointError) -> None:
        """A request got no usable answer: on disk once anything put after it is.

        It is not waited for, so that a cancellation is not either.
        """
        row = (
            self._invocation_id,
            address.branch_id,
            address.step,
            address.slot,
            address.attempt,
            address.stage,
            error.kind,
            error.status,
            str(error),
            error.tries,
            int(error.maybe_paid),
            now(),
        )
        sql = """INSERT INTO failures (invocation_id, branch_id, step, slot, attempt, stage, kind,
                   http_status, message, tries, maybe_paid, created_at)
                 VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"""
        self._writer.submit(lambda db: db.execute(sql, row).rowcount)


def _resumed(db: sqlite3.Connection, invocation_id: int) -> bool:
    """True when an earlier invocation worked on the run: only then can its calls be there."""
    row = db.execute(
        """SELECT EXISTS (SELECT 1 FROM invocations i JOIN invocations me
             ON me.invocation_id = ? AND i.run_id = me.run_id WHERE i.invocation_id < ?)""",
        (invocation_id, invocation_id),
    ).fetchone()
    return bool(row[0])


def _unused(db: sqlite3.Connection, entry: Entry, invocation_id: int) -> str | None:
    """Why the call an earlier invocation made in this place did not serve; None without one.

    One that another run made here, or that another verify function asked, was not meant to.
    """
    a = entry.address
    row = db.execute(
        """SELECT params, i.version FROM calls JOIN call_bodies USING (call_id)
             JOIN invocations i USING (invocation_id)
             JOIN branches theirs ON theirs.branch_id = i.branch_id
             JOIN invocations me ON me.invocation_id = ?
             JOIN branches mine ON mine.branch_id = me.branch_id
            WHERE calls.branch_id = ? AND step = ? AND slot = ? AND attempt = ? AND stage = ?
              AND turn = ? AND i.invocation_id <> me.invocation_id AND i.run_id = me.run_id
              AND (stage <> 'judge' OR theirs.judge_id IS mine.judge_id) LIMIT 1""",
        (invocation_id, a.branch_id, a.step, a.slot, a.attempt, a.stage, entry.turn),
    ).fetchone()
    if row is None:
        return None
    what = "settings" if row["params"] != text_sha(entry.head.decode()) else "messages"
    made = "" if row["version"] == __version__ else f" (they were made by version {row['version']})"
    return f"the {what} of their requests are no longer the same{made}"


def _insert(db: sqlite3.Connection, entry: Entry, invocation_id: int) -> int:
    a, reply, usage = entry.address, entry.reply, entry.reply.usage
    cursor = db.execute(
        """INSERT INTO calls (branch_id, step, slot, attempt, stage, request_hash, nth, turn,
             prev_call_id, role, name, answered_by, finish, tokens_in, tokens_cached, tokens_out,
             tokens_reasoning, cost_micro, price, seeded, tries, seconds, invocation_id,
             created_at)
           VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            a.branch_id,
            a.step,
            a.slot,
            a.attempt,
            a.stage,
            entry.request_hash,
            entry.nth,
            entry.turn,
            entry.prev_call_id,
            ROLE_OF[a.stage],
            entry.name,
            reply.answered_by,
            reply.finish,
            usage.tokens_in,
            usage.tokens_cached,
            usage.tokens_out,
            usage.tokens_reasoning,
            usage.cost_micro,
            reply.price,
            int(reply.seeded),
            reply.tries,
            reply.seconds,
            invocation_id,
            now(),
        ),
    )
    call_id = int(cursor.lastrowid or 0)
    head = entry.head.decode()
    message = canon(reply.message)
    codec = int(len(entry.messages) + len(message) >= COMPRESS_FROM)
    db.execute(
        "INSERT INTO call_bodies (call_id, request, params, reply, codec) VALUES (?,?,?,?,?)",
        (
            call_id,
            _pack(entry.messages, codec),
            put_text(db, head, text_sha(head)),
            _pack(message, codec),
            codec,
        ),
    )
    return call_id


def _pack(body: bytes, codec: int) -> bytes:
    body = redactor.text(body.decode()).encode()
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
