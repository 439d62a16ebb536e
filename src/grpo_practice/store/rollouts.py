"""Rollouts and verdicts: one row per attempt, one verdict per verify function."""

import json
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from grpo_practice.core.calls import Message, Turn, Usage, conversations, ended_by_tool
from grpo_practice.core.errors import StoreError
from grpo_practice.core.hashing import text_sha
from grpo_practice.core.types import Rollout, Sample, Trajectory, Verdict
from grpo_practice.store import branches, datasets
from grpo_practice.store.db import DAMAGED_HINT, Row, insert, insert_all, now, put_text
from grpo_practice.store.identity import has_own_agent
from grpo_practice.store.reading import deleted_meanwhile
from grpo_practice.store.records import Branch, RolloutPrompt, StepRow, Unscored

HEAD = 160
"""Number of characters of a response kept in the narrow row."""

OUTCOME = """
  CASE WHEN v.error IS NOT NULL THEN 'error' WHEN r.outcome = 'error' AND v.reward IS NOT NULL
    THEN 'ok' ELSE r.outcome END AS outcome,
  CASE WHEN v.error IS NOT NULL THEN v.reason
    WHEN r.outcome = 'error' AND v.reward IS NOT NULL THEN NULL ELSE r.reason END AS reason,
  CASE WHEN v.error IS NOT NULL THEN v.error
    WHEN r.outcome = 'error' AND v.reward IS NOT NULL THEN NULL ELSE r.error END AS error"""
"""Outcome of a rollout `r`, according to the verify function with the verdict `v`.

An answer that this function could not score is an error; an answer that only another function
failed to score is not an error. Do not select `r.*` beside it, which has the same three names.
"""


@dataclass(frozen=True, slots=True)
class Save:
    """An attempt to store, with its position and prompt."""

    branch_id: int
    step: int
    rollout: Rollout
    prompt: RolloutPrompt
    verifier_id: int
    messages: str | None = None
    """Messages before a recorded response, as JSON; None for a played rollout, whose calls hold
    them."""

    @property
    def key(self) -> Row:
        """Columns that identify a rollout."""
        return {
            "branch_id": self.branch_id,
            "step": self.step,
            "slot": self.rollout.slot,
            "attempt": self.rollout.attempt,
        }


_OF_KEY = """FROM rollouts WHERE branch_id = :branch_id AND step = :step AND slot = :slot
  AND attempt = :attempt"""
_BODY = f"""INSERT INTO rollout_bodies (rollout_id, response, messages)
SELECT rollout_id, :response, :messages {_OF_KEY}
ON CONFLICT DO UPDATE SET response = excluded.response"""
_VERDICT_FIELDS = [field.name for value in (Verdict, Unscored) for field in fields(value)]
"""Columns of a verdict, named like the fields of its values."""
_VERDICT_COLUMNS = ["verifier_id", *_VERDICT_FIELDS]
# The first reward stays; an error is replaced by a reward. INSERT OR REPLACE would delete the row.
_FIRST_STANDS = f"""ON CONFLICT DO UPDATE
  SET {", ".join(f"{name} = excluded.{name}" for name in _VERDICT_FIELDS)} WHERE reward IS NULL"""
_VERDICT = f"""INSERT INTO verdicts (rollout_id, {", ".join(_VERDICT_COLUMNS)})
SELECT rollout_id, :{", :".join(_VERDICT_COLUMNS)} {_OF_KEY} {_FIRST_STANDS}"""


def save(db: sqlite3.Connection, saves: Sequence[Save]) -> Sequence[None]:
    """Insert each attempt's row, its response, and its verdict if it has one.

    A row without a verdict (a failed attempt) is updated; a row with a verdict stays unchanged.
    """
    # Each text once: most attempts of a batch share their prompt.
    texts = {save.prompt.system for save in saves}
    systems = {text: put_text(db, text, text_sha(text)) for text in texts}
    at = now()
    rows = [save.key | _columns(save, systems[save.prompt.system], at) for save in saves]
    # Update every column that is written, including those that a later version adds.
    changed = ", ".join(f"{c} = excluded.{c}" for c in rows[0] if c not in saves[0].key)
    insert_all(db, "rollouts", rows, more=f"ON CONFLICT DO UPDATE SET {changed}")
    # Found by the rollout's key: executemany() returns no ids, nor does an upsert that updates.
    bodies = [{"response": s.rollout.played.response, "messages": s.messages} for s in saves]
    db.executemany(_BODY, [s.key | body for s, body in zip(saves, bodies, strict=True)])
    db.executemany(
        _VERDICT,
        [
            s.key | _verdict_columns(s.verifier_id, s.rollout.verdict)
            for s in saves
            if s.rollout.verdict is not None
        ],
    )
    return [None] * len(saves)


def _columns(save: Save, system_sha: bytes, finished_at: str) -> Row:
    """Return the columns of a rollout's row that describe the rollout."""
    rollout, played = save.rollout, save.rollout.played
    return {
        "sample_id": rollout.sample.id,
        "seed": save.prompt.seed,
        "library_id": save.prompt.library_id,
        "left_out": json.dumps(save.prompt.left_out) if save.prompt.left_out else None,
        "system_sha": system_sha,
        "outcome": played.outcome,
        "reason": played.reason,
        "error": played.error,
        "strikes": rollout.strikes,
        "turns": played.turns,
        "tool_calls": played.tool_calls,
        **asdict(played.usage),
        "model_ms": round(played.model_s * 1000),
        "head": played.response[:HEAD],
        "finished_at": finished_at,
    }


def _verdict_columns(verifier_id: int, verdict: Verdict | Unscored) -> Row:
    row: Row = dict.fromkeys(_VERDICT_COLUMNS) | {"verifier_id": verifier_id}
    if isinstance(verdict, Unscored):
        return row | {"reason": verdict.reason, "error": verdict.error}
    return row | asdict(verdict) | {"reward": float(verdict.reward)}


def put_verdict(
    db: sqlite3.Connection, rollout_id: int, verifier_id: int, verdict: Verdict | Unscored
) -> None:
    """Insert a verify function's verdict on a rollout, or the reason for having no verdict."""
    row = {"rollout_id": rollout_id} | _verdict_columns(verifier_id, verdict)
    insert(db, "verdicts", row, more=_FIRST_STANDS)


def stored(
    db: sqlite3.Connection,
    branch: Branch,
    step: StepRow,
    *,
    transcripts: bool,
    slot: int | None = None,
    attempt: int | None = None,
) -> dict[tuple[int, int], tuple[int, Rollout]]:
    """Return (slot, attempt) → (rollout_id, rollout) for all stored rollouts of a step.

    `slot`, `attempt`: the only group and the only attempts to read; None reads all.
    """
    held_by, plan = step.played_by or step.branch_id, step.plan
    if slot is not None:
        plan = replace(plan, slots=plan.slots[slot : slot + 1])
    # Not `branch.reuses`: the rollouts may belong to another branch, which has its own lenders.
    lenders = branches.reuses(db, held_by)
    samples = {s.id: s for s in datasets.samples_of(db, plan)}
    rows = db.execute(
        f"""SELECT r.rollout_id, r.sample_id, r.slot, r.attempt, r.strikes, r.turns, r.tool_calls,
                  r.{", r.".join(_USAGE)}, r.model_ms, b.response, v.reward, v.critique,
                  v.extracted, {OUTCOME} FROM rollouts r
             JOIN rollout_bodies b USING (rollout_id)
             LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.verifier_id = ?
            WHERE r.branch_id = ? AND r.step = ? AND (? IS NULL OR r.slot = ?)
              AND (? IS NULL OR r.attempt = ?)""",
        # Only verdicts of this branch's verify function: a rollout that was
        # scored again has several.
        (branch.verifier_id, held_by, step.plan.step, slot, slot, attempt, attempt),
    ).fetchall()
    found, own = {}, transcripts and own_agent(db, held_by)
    for row in rows:
        place = (row["slot"], row["attempt"])
        at = (held_by, step.plan.step, *place)
        messages = transcript(db, at, lenders) if transcripts else []
        if row["response"] and not own:
            # If a tool's result was the answer, no later request contains it.
            messages = ended_by_tool(messages, row["response"])
        rollout = _rollout(row, samples[row["sample_id"]], messages)
        found[place] = (int(row["rollout_id"]), rollout)
    return found


def _rollout(row: sqlite3.Row, sample: Sample, messages: Sequence[Message]) -> Rollout:
    verdict = None
    if row["reward"] is not None:
        verdict = Verdict(row["reward"], row["critique"], row["extracted"])
    played = Trajectory(
        outcome=row["outcome"],
        response=row["response"],
        transcript=messages,
        reason=row["reason"],
        error=row["error"],
        turns=row["turns"],
        tool_calls=row["tool_calls"],
        usage=usage_of(row),
        model_s=row["model_ms"] / 1000,
    )
    return Rollout(row["slot"], row["attempt"], sample, played, verdict, row["strikes"])


def system_prompts(db: sqlite3.Connection, step: StepRow, slot: int) -> dict[int, str]:
    """Return attempt → its system prompt, for one group."""
    rows = db.execute(
        """SELECT attempt, body FROM rollouts JOIN texts ON sha256 = system_sha
            WHERE branch_id = ? AND step = ? AND slot = ?""",
        (step.played_by or step.branch_id, step.plan.step, slot),
    )
    return dict(rows.fetchall())


def usage_of(row: sqlite3.Row) -> Usage:
    """Return the tokens and the cost in a row of `rollouts` or `calls`."""
    return Usage(**{name: row[name] for name in _USAGE})


_USAGE = [f.name for f in fields(Usage)]


def transcript(
    db: sqlite3.Connection, place: tuple[int, int, int, int], lenders: Sequence[int]
) -> list[Message]:
    """Return the conversation of a rollout, assembled from its calls; see `turns_of`."""
    return conversations(turns_of(db, place, lenders))


def turns_of(
    db: sqlite3.Connection, place: tuple[int, int, int, int], lenders: Sequence[int]
) -> list[Turn]:
    """Return the calls that make up a rollout's conversation.

    `place`: (branch_id, step, slot, attempt). Each call holds the messages since the call it
    continues, so the last call and its ancestors hold the whole conversation. `lenders`: branches
    whose calls may have answered.
    """
    branch_id, *rest = place
    turns, ends = dict[int, Turn](), list[int]()
    for branch in (branch_id, *lenders):
        rows = db.execute(
            """SELECT call_id, prev_call_id, turn, request_hash, nth, request, reply, codec
                 FROM calls JOIN call_bodies USING (call_id)
                WHERE branch_id = ? AND step = ? AND slot = ? AND attempt = ? AND stage = 'play'
                ORDER BY call_id""",
            (branch, *rest),
        )
        here = {row["call_id"]: _turn(row) for row in rows}
        # The newest branch with calls determines the end; older ones only contribute turns.
        ends = ends or list(here)
        turns |= here
    # The user's own agent may have several conversations at once, and all of them count.
    if not own_agent(db, branch_id):
        ends = ends[-1:]
    told = dict[int, Turn]()
    for end in ends:
        at: int | None = end
        # Stop at a known call: conversations that fork share their beginning.
        while at is not None and at not in told:
            told[at] = turns[at]
            at = turns[at].prev_call_id
    return list(told.values()) or _recorded(db, place)


def _recorded(db: sqlite3.Connection, place: tuple[int, int, int, int]) -> list[Turn]:
    """Return the conversation of a recorded attempt as one turn; [] for any other rollout."""
    row = db.execute(
        """SELECT messages, response FROM rollouts JOIN rollout_bodies USING (rollout_id)
            WHERE branch_id = ? AND step = ? AND slot = ? AND attempt = ? AND messages NOT NULL""",
        place,
    ).fetchone()
    if row is None:
        return []
    messages: list[Message] = json.loads(row["messages"])
    if messages[-1].get("role") != "assistant":
        messages.append({"role": "assistant", "content": row["response"]})
    return [Turn(0, None, (0, b"", 0), messages)]


def _turn(row: sqlite3.Row) -> Turn:
    said: list[Message] = [*unpack(row["request"], row["codec"])]
    said.append(unpack(row["reply"], row["codec"]))
    order = (row["turn"], row["request_hash"], row["nth"])
    return Turn(row["call_id"], row["prev_call_id"], order, said)


def own_agent(db: sqlite3.Connection, branch_id: int) -> bool:
    """Return True if the user's own agent plays the rollouts of this branch."""
    row = db.execute("SELECT identity FROM branches WHERE branch_id = ?", (branch_id,)).fetchone()
    if row is None:
        raise deleted_meanwhile()
    return has_own_agent(json.loads(row["identity"]))


def unpack(blob: bytes, codec: int) -> Any:
    """Return a stored JSON body; raise StoreError if it is damaged."""
    try:
        # Decoded here, because json.loads first guesses the encoding of bytes.
        return json.loads((zlib.decompress(blob) if codec else blob).decode(errors="surrogatepass"))
    except (zlib.error, ValueError) as e:
        raise StoreError(
            f"a stored message cannot be read ({e}): the database is damaged",
            hint=DAMAGED_HINT,
        ) from e
