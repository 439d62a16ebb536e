"""Rows that make up a trace: a step, and one of its groups or its merge."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from grpo_practice.core.calls import Message, Usage
from grpo_practice.core.errors import StoreError
from grpo_practice.core.stages import Stage
from grpo_practice.store.queries.arms import question_texts
from grpo_practice.store.rollouts import OUTCOME, unpack, usage_of

T = TypeVar("T")

Place = Mapping[str, int | str]
"""Branch, step and slots, as parameters of a query."""

MERGE = -1
"""Slot of the calls that a step makes for all its groups."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step of a run, with the data that the traces of its groups share."""

    run: str
    exp_id: str
    begun: str
    """Time at which the run began; with the run's name, it identifies the run across databases."""
    simulated: bool
    branch_id: int
    """Branch that holds the step."""
    played_by: int
    """Branch that holds its rollouts and calls."""
    verifier_id: int
    verify: str
    step: int
    slots: Sequence[tuple[int, int]]
    """(sample_id, attempts) per slot."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call to a model or a tool; texts are None if they were not requested."""

    call_id: int
    prev_call_id: int | None
    attempt: int
    stage: Stage
    name: str
    answered_by: str
    finish: str | None
    usage: Usage
    tries: int
    """Number of requests; 0 for a tool, which makes none itself."""
    seconds: float
    ended: datetime
    params: str | None = None
    """Canonical JSON of `{model, params, tools}` without the seed."""
    request: Sequence[Any] = ()
    """Messages since the call that it continues; for a tool, its arguments."""
    reply: Message = field(default_factory=dict)

    @property
    def is_tool(self) -> bool:
        """True for a call to a tool, but not for a model call made by a tool."""
        return self.tries == 0


@dataclass(frozen=True, slots=True)
class TracedFailure:
    """A request that got no usable answer."""

    failure_id: int
    attempt: int
    stage: Stage
    kind: str
    message: str
    ended: datetime


@dataclass(frozen=True, slots=True)
class TracedRollout:
    """A rollout with its verdict."""

    attempt: int
    outcome: str
    reason: str | None
    error: str | None
    reward: float | None
    has_verdict: bool
    """True if there is a verdict, even if it is an error."""
    critique: str | None
    ended: datetime
    response: str | None = None


@dataclass(frozen=True, slots=True)
class TracedGroup:
    """A group with its distillation, or the merge of a step."""

    step: TracedStep
    slot: int
    question: str | None
    rollouts: Sequence[TracedRollout]
    calls: Sequence[TracedCall]
    failures: Sequence[TracedFailure]


def traced_steps(db: sqlite3.Connection, run: str) -> list[TracedStep]:
    """Return the steps of a run that were begun, in order."""
    rows = db.execute(f"{_STEPS} AND s.status <> 'planned' ORDER BY s.step", (run,))
    return [_step(row) for row in rows]


def traced_step(db: sqlite3.Connection, run: str, step: int) -> TracedStep:
    """Return a step of a run.

    Raises:
        StoreError: The run has been deleted.
    """
    row = db.execute(f"{_STEPS} AND s.step = ?", (run, step)).fetchone()
    if row is None:
        raise StoreError(f"{run}: step {step} no longer exists")
    return _step(row)


_STEPS = """SELECT s.run_id AS run, r.exp_id, r.created_at AS begun, r.simulated, s.branch_id,
      coalesce(s.played_by, s.branch_id) AS played_by, coalesce(b.verifier_id, 0) AS verifier_id,
      coalesce(f.name, '') AS verify, s.step, s.plan
 FROM v_steps s JOIN runs r ON r.run_id = s.run_id JOIN branches b ON b.branch_id = s.branch_id
 LEFT JOIN verifiers f ON f.verifier_id = b.verifier_id WHERE s.run_id = ?"""


def _step(row: sqlite3.Row) -> TracedStep:
    values = dict(row)
    values["simulated"] = bool(row["simulated"])
    values["slots"] = [(sample, k) for sample, k in json.loads(values.pop("plan"))]
    return TracedStep(**values)


def played_slots(db: sqlite3.Connection, step: TracedStep) -> list[int]:
    """Return the slots of groups whose planned attempts are all stored."""
    rows = db.execute(
        "SELECT slot, count(*) FROM rollouts WHERE branch_id = ? AND step = ? GROUP BY slot",
        (step.played_by, step.step),
    )
    return [slot for slot, n in rows if n >= step.slots[slot][1]]


def traced_groups(
    db: sqlite3.Connection, step: TracedStep, slots: Sequence[int], *, content: bool
) -> list[TracedGroup]:
    """Return groups of a step, or for the slot `MERGE` its merge; without `content`, no texts."""
    # All slots with one query per table: a query per group would take as long as its rows.
    # As JSON, because SQLite limits the number of parameters.
    place: Place = {"branch": step.played_by, "step": step.step, "slots": json.dumps(slots)}
    # A merge is about all groups of the step, so it has no question of its own.
    asked = {slot: step.slots[slot][0] for slot in slots if slot != MERGE}
    questions = question_texts(db, asked.values()) if content else {}
    rollouts = _by_slot(_rollouts(db, step, place, content=content))
    calls = _by_slot(_calls(db, step, place, content=content))
    failures = _by_slot(_failures(db, place))
    return [
        TracedGroup(
            step,
            slot,
            questions.get(asked[slot]) if slot in asked else None,
            rollouts=rollouts[slot],
            calls=calls[slot],
            failures=failures[slot],
        )
        for slot in slots
    ]


_HERE = """branch_id = :branch AND step = :step
  AND slot IN (SELECT value FROM json_each(:slots))"""


def _by_slot(found: Iterable[tuple[int, T]]) -> defaultdict[int, list[T]]:
    of = defaultdict[int, list[T]](list)
    for slot, one in found:
        of[slot].append(one)
    return of


def _rollouts(
    db: sqlite3.Connection, step: TracedStep, place: Place, *, content: bool
) -> Iterator[tuple[int, TracedRollout]]:
    body = "b.response" if content else "NULL AS response"
    join = "JOIN rollout_bodies b USING (rollout_id)" if content else ""
    rows = db.execute(
        f"""SELECT r.slot, r.attempt, r.finished_at, {body}, v.rollout_id AS has_verdict, v.reward,
              v.critique, {OUTCOME} FROM rollouts r {join}
              LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.verifier_id = :verifier
             WHERE {_HERE} ORDER BY r.slot, r.attempt""",
        {**place, "verifier": step.verifier_id},
    )
    for row in rows:
        yield (
            row["slot"],
            TracedRollout(
                attempt=row["attempt"],
                outcome=row["outcome"],
                reason=row["reason"],
                error=row["error"],
                reward=row["reward"],
                has_verdict=row["has_verdict"] is not None,
                critique=row["critique"],
                ended=datetime.fromisoformat(row["finished_at"]),
                response=row["response"],
            ),
        )


def _calls(
    db: sqlite3.Connection, step: TracedStep, place: Place, *, content: bool
) -> Iterator[tuple[int, TracedCall]]:
    bodies = ", b.request, b.reply, b.codec, t.body AS params" if content else ""
    join = (
        "JOIN call_bodies b USING (call_id) LEFT JOIN texts t ON t.sha256 = b.params"
        if content
        else ""
    )
    # Another run that scores these rollouts stores its judge calls at the same address. If the
    # rollouts belong to another run, so do the calls that played them.
    rows = db.execute(
        f"""SELECT slot, call_id, prev_call_id, attempt, stage, name, answered_by, finish, tries,
              seconds, created_at, tokens_in, tokens_cached, tokens_out, tokens_reasoning,
              cost_micro {bodies} FROM calls c {join}
             WHERE {_HERE} AND CASE c.stage WHEN 'judge' THEN c.invocation_id IN
                 (SELECT invocation_id FROM invocations WHERE run_id = :run) ELSE :own END
             ORDER BY c.call_id""",
        {**place, "run": step.run, "own": step.played_by == step.branch_id},
    )
    for row in rows:
        texts: dict[str, Any] = {}
        if content:
            texts = {
                "params": row["params"],
                "request": unpack(row["request"], row["codec"]),
                "reply": unpack(row["reply"], row["codec"]),
            }
        yield (
            row["slot"],
            TracedCall(
                call_id=row["call_id"],
                prev_call_id=row["prev_call_id"],
                attempt=row["attempt"],
                stage=row["stage"],
                name=row["name"],
                answered_by=row["answered_by"] or "",
                finish=row["finish"],
                usage=usage_of(row),
                tries=row["tries"],
                seconds=row["seconds"],
                ended=datetime.fromisoformat(row["created_at"]),
                **texts,
            ),
        )


def _failures(db: sqlite3.Connection, place: Place) -> Iterator[tuple[int, TracedFailure]]:
    rows = db.execute(
        f"""SELECT slot, failure_id, attempt, stage, kind, message, created_at FROM failures
            WHERE {_HERE} ORDER BY failure_id""",
        place,
    )
    for slot, number, attempt, stage, kind, message, at in rows:
        ended = datetime.fromisoformat(at)
        yield slot, TracedFailure(number, attempt, stage, kind, message, ended)
