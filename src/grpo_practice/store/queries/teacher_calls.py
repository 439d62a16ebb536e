"""Reads the requests to the teacher about a group, and its replies."""

import json
import sqlite3
from dataclasses import dataclass

from grpo_practice.core.calls import Reply
from grpo_practice.core.stages import Stage, distillation
from grpo_practice.store.records import Branch
from grpo_practice.store.rollouts import unpack

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
    lenders = json.dumps([branch.holder(step), *branch.reuses])
    return [*map(_call, db.execute(_CALLS, (lenders, step, _STAGES, slot)))]


def _call(row: sqlite3.Row) -> TeacherCall:
    messages = unpack(row["request"], row["codec"])
    asked = "\n\n".join(Reply(message).content for message in messages)
    reply = Reply(unpack(row["reply"], row["codec"])).content
    place, call = (row["step"], row["slot"]), (row["stage"], row["attempt"], row["finish"])
    return TeacherCall(*place, *call, asked, reply)
