"""Reads how a group was distilled: the teacher's replies, the proposals and their fate."""

import json
import sqlite3
from dataclasses import dataclass

from grpo_practice.core.calls import Reply
from grpo_practice.core.stages import Stage, distillation
from grpo_practice.store.records import Branch
from grpo_practice.store.rollouts import unpack


@dataclass(frozen=True, slots=True)
class OperationLine:
    """An operation on the library, as a row of a list."""

    op: str
    target: str | None
    """ID of the experience that the operation is about: `E12`."""
    text: str | None
    status: str
    """`proposed`, `applied`, `refused`, `quarantined` or `rejected`."""
    reason: str | None
    finding: str | None
    """Finding of the comparison about that experience."""
    became: str | None
    """ID of the experience that the operation added or changed."""


def operations_at(
    db: sqlite3.Connection, branch: Branch, step: int, slot: int | None
) -> list[OperationLine]:
    """Return the operations of a group in order; with slot None, those in the step's merge."""
    rows = db.execute(
        """SELECT o.op, 'E' || t.label AS target, o.text, o.status, o.reason, o.finding,
                  'E' || r.label AS became
             FROM operations o
             LEFT JOIN experiences t ON t.experience_id = o.target_id
             LEFT JOIN experiences r ON r.experience_id = o.result_id
            WHERE o.branch_id = ? AND o.step = ? AND o.slot = ?
            ORDER BY o.ordinal, o.op_id""",
        (branch.holder(step), step, -1 if slot is None else slot),
    )
    return [OperationLine(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class GroupReward:
    """A group of a question, as a row of a list."""

    step: int
    slot: int
    mean: float | None


def groups_of_question(
    db: sqlite3.Connection, branch: Branch, sample_id: int, most: int
) -> list[GroupReward]:
    """Return the newest groups of a question in closed practice steps of a line, oldest first."""
    found = list[GroupReward]()
    for segment in branch.line:
        rows = db.execute(
            """SELECT step, slot, mean_reward AS mean FROM groups
                WHERE sample_id = ? AND branch_id = ? AND step >= ? AND step < ?
                ORDER BY step DESC, slot DESC LIMIT ?""",
            (sample_id, *segment, most - len(found)),
        )
        found += [GroupReward(**row) for row in rows]
    # The line and the rows were read newest first.
    return found[::-1]


_STAGES = json.dumps(distillation())
_CALLS = """SELECT c.step, c.slot, c.attempt, c.stage, c.finish, b.request, b.reply, b.codec
  FROM calls c JOIN call_bodies b USING (call_id)
 WHERE c.branch_id IN (SELECT value FROM json_each(?)) AND c.step = ?
   AND c.stage IN (SELECT value FROM json_each(?)) AND c.slot = ? ORDER BY c.call_id"""


@dataclass(frozen=True, slots=True)
class TeacherCall:
    """An answered request to the teacher."""

    step: int
    slot: int
    """Group that the call is about; -1 for the step's merge."""
    stage: Stage
    attempt: int
    """Summarised attempt; -1 for a call about the whole group or step."""
    finish: str | None
    asked: str
    """Text of the messages added since the call that this one continues."""
    reply: str


def teacher_calls(
    db: sqlite3.Connection, branch: Branch, step: int, slot: int
) -> list[TeacherCall]:
    """Return the calls about a group in order; with slot -1, the calls of the step's merge."""
    # A reused answer is stored with the branch that paid for it, under the same address.
    lenders = json.dumps([branch.holder(step), *branch.reuses])
    return [*map(_call, db.execute(_CALLS, (lenders, step, _STAGES, slot)))]


def _call(row: sqlite3.Row) -> TeacherCall:
    messages = unpack(row["request"], row["codec"])
    asked = "\n\n".join(Reply(message).content for message in messages)
    reply = Reply(unpack(row["reply"], row["codec"])).content
    place, call = (row["step"], row["slot"]), (row["stage"], row["attempt"], row["finish"])
    return TeacherCall(*place, *call, asked, reply)
