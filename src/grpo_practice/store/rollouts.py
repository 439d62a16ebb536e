"""Rollouts and verdicts: one row an attempt, one verdict a verify function."""

import json
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.calls import Message, Turn, Usage, conversations, ended_by_tool
from grpo_practice.canonical import text_sha
from grpo_practice.errors import StoreError
from grpo_practice.store import datasets
from grpo_practice.store.db import now, put_text
from grpo_practice.store.records import Branch, RolloutPrompt, StepRow
from grpo_practice.types import Rollout, Sample, Trajectory, Verdict

HEAD = 160
"""Characters of a response kept in the narrow row."""

_COLUMNS = (
    "sample_id, seed, library_id, system_sha, outcome, reason, error, strikes, turns, tool_calls,"
    " tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost_micro, model_ms, head,"
    " finished_at"
)

JUDGED = """
  CASE WHEN v.error IS NOT NULL THEN 'error' WHEN r.outcome = 'error' AND v.reward IS NOT NULL
    THEN 'ok' ELSE r.outcome END AS judged_outcome,
  CASE WHEN v.error IS NOT NULL THEN substr(v.error, 1, instr(v.error, ': ') - 1)
    WHEN r.outcome = 'error' AND v.reward IS NOT NULL THEN NULL ELSE r.reason END AS judged_reason,
  CASE WHEN v.error IS NOT NULL THEN substr(v.error, instr(v.error, ': ') + 2)
    WHEN r.outcome = 'error' AND v.reward IS NOT NULL THEN NULL ELSE r.error END AS judged_error"""
"""How a rollout `r` ended, for the function whose verdict `v` is.

An answer that this function could not score is an error; one that only another function could
not score is none.
"""


@dataclass(frozen=True, slots=True)
class Save:
    """An attempt to be recorded, and where."""

    at: tuple[int, int]
    """(branch_id, step)."""
    rollout: Rollout
    told: RolloutPrompt
    judge_id: int

    @property
    def place(self) -> tuple[int, int, int, int]:
        """What the row is found by."""
        return (*self.at, self.rollout.slot, self.rollout.attempt)


_PLACE = "branch_id = ? AND step = ? AND slot = ? AND attempt = ?"
_ROW = f"""
INSERT INTO rollouts (branch_id, step, slot, attempt, {_COLUMNS})
VALUES ({", ".join("?" * (4 + _COLUMNS.count(",") + 1))})
ON CONFLICT DO UPDATE SET {", ".join(f"{c} = excluded.{c}" for c in _COLUMNS.split(", "))}"""
_BODY = f"""
INSERT INTO rollout_bodies (rollout_id, response)
SELECT rollout_id, ? FROM rollouts WHERE {_PLACE}
ON CONFLICT DO UPDATE SET response = excluded.response"""
_STANDS = """
ON CONFLICT DO UPDATE SET reward = excluded.reward, critique = excluded.critique,
  extracted = excluded.extracted, error = excluded.error WHERE reward IS NULL"""
"""The first reward stands; an error only until there is one."""
_VERDICT = f"""
INSERT INTO verdicts (rollout_id, judge_id, reward, critique, extracted, error)
SELECT rollout_id, ?, ?, ?, ?, ? FROM rollouts WHERE {_PLACE} {_STANDS}"""


def save(db: sqlite3.Connection, saves: Sequence[Save]) -> Sequence[None]:
    """Each attempt's row, its response, and its verdict where it has one.

    A row that has no verdict (a failed attempt) is brought up to date; one that has is left.
    """
    texts = {save.told.system for save in saves}
    systems = {text: put_text(db, text, text_sha(text)) for text in texts}
    at = now()
    db.executemany(_ROW, [(*s.place, *_values(s, systems[s.told.system]), at) for s in saves])
    db.executemany(_BODY, [(s.rollout.played.response, *s.place) for s in saves])
    db.executemany(
        _VERDICT,
        [
            (s.judge_id, *_said(s.rollout.verdict), *s.place)
            for s in saves
            if s.rollout.verdict is not None
        ],
    )
    return [None] * len(saves)


def _values(save: Save, system_sha: bytes) -> tuple[object, ...]:
    rollout, told = save.rollout, save.told
    p, u = rollout.played, rollout.played.usage
    return (
        rollout.sample.id,
        told.seed,
        told.library_id,
        system_sha,
        p.outcome,
        p.reason,
        p.error,
        rollout.strikes,
        p.turns,
        p.tool_calls,
        u.tokens_in,
        u.tokens_cached,
        u.tokens_out,
        u.tokens_reasoning,
        u.cost_micro,
        round(p.model_s * 1000),
        p.response[:HEAD],
    )


def _said(verdict: Verdict | str) -> tuple[object, ...]:
    """Reward, critique, extracted, error."""
    if isinstance(verdict, Verdict):
        return (float(verdict.reward), verdict.critique, verdict.extracted, None)
    return (None, None, None, verdict)


def put_verdict(
    db: sqlite3.Connection, rollout_id: int, judge_id: int, verdict: Verdict | str
) -> None:
    """What a verify function said of a rollout, or (a text `reason: error`) why it could not."""
    db.execute(
        f"""INSERT INTO verdicts (rollout_id, judge_id, reward, critique, extracted, error)
            VALUES (?,?,?,?,?,?) {_STANDS}""",
        (rollout_id, judge_id, *_said(verdict)),
    )


def stored(
    db: sqlite3.Connection,
    branch: Branch,
    step: StepRow,
    *,
    transcripts: bool,
) -> dict[tuple[int, int], tuple[int, Rollout]]:
    """Return (slot, attempt) → (rollout_id, rollout) for what is already there of a step."""
    held_by = step.played_by or step.branch_id
    samples = {s.id: s for s in datasets.samples_of(db, step.plan)}
    rows = db.execute(
        f"""SELECT r.*, b.response, v.reward, v.critique, v.extracted, {JUDGED} FROM rollouts r
             JOIN rollout_bodies b USING (rollout_id)
             LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.judge_id = ?
            WHERE r.branch_id = ? AND r.step = ?""",
        (branch.judge_id, held_by, step.plan.step),
    ).fetchall()
    found, own = {}, transcripts and _own_agent(db, held_by)
    for row in rows:
        place = (row["slot"], row["attempt"])
        at = (held_by, step.plan.step, *place)
        messages = transcript(db, at, branch.reuses) if transcripts else []
        if row["response"] and not own:
            messages = ended_by_tool(messages, row["response"])
        rollout = _rollout(row, samples[row["sample_id"]], messages)
        found[place] = (int(row["rollout_id"]), rollout)
    return found


def _rollout(row: sqlite3.Row, sample: Sample, messages: Sequence[Message]) -> Rollout:
    verdict = None
    if row["reward"] is not None:
        verdict = Verdict(row["reward"], row["critique"], row["extracted"])
    played = Trajectory(
        outcome=row["judged_outcome"],
        response=row["response"],
        transcript=messages,
        reason=row["judged_reason"],
        error=row["judged_error"],
        turns=row["turns"],
        tool_calls=row["tool_calls"],
        usage=usage_of(row),
        model_s=row["model_ms"] / 1000,
    )
    return Rollout(row["slot"], row["attempt"], sample, played, verdict, row["strikes"])


def usage_of(row: sqlite3.Row) -> Usage:
    """The tokens and the cost in a row of `rollouts` or `calls`."""
    names = ("tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning", "cost_micro")
    return Usage(*(row[name] for name in names))


def transcript(
    db: sqlite3.Connection, place: tuple[int, int, int, int], reuses: Sequence[int]
) -> list[Message]:
    """The conversation of a rollout, put together from its calls.

    `place`: (branch_id, step, slot, attempt). Each call holds the messages since the one it
    continues, so the last call's line of descent is the whole of it. The user's own agent may
    hold several conversations, and all of them count.
    """
    branch_id, *rest = place
    turns, ends = dict[int, Turn](), list[int]()
    for branch in (branch_id, *reuses):
        rows = db.execute(
            """SELECT call_id, prev_call_id, turn, request_hash, nth, request, reply, codec
                 FROM calls JOIN call_bodies USING (call_id)
                WHERE branch_id = ? AND step = ? AND slot = ? AND attempt = ? AND stage = 'play'
                ORDER BY call_id""",
            (branch, *rest),
        )
        here = {row["call_id"]: _turn(row) for row in rows}
        ends = ends or list(here)
        turns |= here
    if not _own_agent(db, branch_id):
        ends = ends[-1:]
    told = dict[int, Turn]()
    for end in ends:
        at: int | None = end
        while at is not None and at not in told:
            told[at] = turns[at]
            at = turns[at].prev_call_id
    return conversations(told.values())


def _turn(row: sqlite3.Row) -> Turn:
    said: list[Message] = [*unpack(row["request"], row["codec"])]
    said.append(unpack(row["reply"], row["codec"]))
    order = (row["turn"], row["request_hash"], row["nth"])
    return Turn(row["call_id"], row["prev_call_id"], order, said)


def _own_agent(db: sqlite3.Connection, branch_id: int) -> bool:
    """True when the rollouts of a branch are played by an agent of the user's own."""
    row = db.execute(
        """SELECT coalesce(json_extract(identity, '$."agent.type"'),
                           json_extract(identity, '$."evaluation.agent.type"'))
             FROM branches WHERE branch_id = ?""",
        (branch_id,),
    ).fetchone()
    return row[0] in ("python", "command")


def unpack(blob: bytes, codec: int) -> Any:
    """A stored JSON body.

    Raises:
        StoreError: It is damaged.
    """
    try:
        return json.loads(zlib.decompress(blob) if codec else blob)
    except (zlib.error, ValueError) as e:
        raise StoreError(
            f"a stored message cannot be read ({e}): the database is damaged",
            hint="grpo-practice db check says what is wrong; go on with a copy made by db backup",
        ) from e
