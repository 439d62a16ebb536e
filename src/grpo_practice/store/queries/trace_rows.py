"""All that is stored of one group, or of one merge: its rollouts, calls and failures."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grpo_practice.calls import Message, Usage
from grpo_practice.store import branches
from grpo_practice.store.queries import rollout_list, runs
from grpo_practice.store.records import Branch, RunRow, StepRow
from grpo_practice.store.rollouts import JUDGED, unpack, usage_of
from grpo_practice.store.step_totals import ROLLOUTS

MERGE = -1
"""Slot of the calls that are for no group."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call of a model or a tool that was answered."""

    id: int
    attempt: int
    """Attempt that it was made for; -1 for none."""
    stage: str
    is_tool: bool
    """False for a call of a model, also of one that a tool asks."""
    name: str
    """Model or tool, as asked."""
    answered_by: str
    """`model@host`; '' where it is not known."""
    finish: str | None
    usage: Usage
    seconds: float
    """Seconds of the try that was answered."""
    created_at: str
    before: int | None
    """Call whose conversation this one continues."""
    request: Sequence[Message] = ()
    """Messages since that call; arguments of a tool. Empty where bodies are not read."""
    reply: Message | None = None


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """A request that gave no usable answer."""

    id: int
    attempt: int
    stage: str
    kind: str
    message: str
    created_at: str


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """A rollout, without what was said in it."""

    attempt: int
    outcome: str
    reason: str | None
    error: str | None
    reward: float | None
    extracted: str | None
    critique: str | None
    response: str
    finished_at: str


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group, or a merge, with its calls in the order in which they were stored."""

    run: RunRow
    branch_id: int
    step: int
    slot: int
    """`MERGE` for a merge."""
    question: str
    """Question of the group; '' for a merge."""
    number: int | None
    """Number of the question in the run's dataset, counted from 1."""
    verify: str
    attempts: Sequence[StoredAttempt]
    planned: int
    """Attempts that the group plans; 0 for a merge."""
    calls: Sequence[StoredCall]
    failures: Sequence[StoredFailure]


def group_places(
    db: sqlite3.Connection, branch: Branch, after: tuple[int, int] | None = None
) -> Iterator[tuple[int, int]]:
    """Yield step and slot of each group and merge on a branch's line that has a call, in order.

    A statement finds each, so that no long read keeps a writer's log from shrinking.
    """
    step, slot = after or (-1, MERGE - 1)
    while True:
        found = _next_place(db, branch, step, slot)
        if found is None:
            return
        yield found
        step, slot = found


def _next_place(
    db: sqlite3.Connection, branch: Branch, step: int, slot: int
) -> tuple[int, int] | None:
    for segment in sorted(branch.line, key=lambda s: s.first):
        for holder in (segment.branch_id, *branches.reuses(db, segment.branch_id)):
            row = db.execute(
                """SELECT step, slot FROM calls
                    WHERE branch_id = ? AND (step, slot) > (?, ?) AND step < ?
                    ORDER BY step, slot LIMIT 1""",
                (holder, *max((step, slot), (segment.first, MERGE - 1)), segment.end),
            ).fetchone()
            if row is not None:
                return int(row[0]), int(row[1])
    return None


def written(db: sqlite3.Connection, step: StepRow, slot: int) -> int:
    """Count the rollouts of a group that have a row."""
    row = db.execute(
        "SELECT count(*) FROM rollouts WHERE branch_id = ? AND step = ? AND slot = ?",
        (step.played_by or step.branch_id, step.plan.step, slot),
    ).fetchone()
    return int(row[0])


def stored_group(
    db: sqlite3.Connection, branch: Branch, step: StepRow, slot: int, *, bodies: bool = True
) -> StoredGroup:
    """Return what is stored of a group, or with the slot `MERGE` of a step's merge.

    Without `bodies`, nothing that was said or asked is read.

    Raises:
        ConfigError: The run is gone.
    """
    run = runs.get(db, branch.run)
    held_by, number, question = step.played_by or step.branch_id, None, ""
    attempts = list[StoredAttempt]()
    if slot != MERGE:
        sample, _ = step.plan.slots[slot]
        number = rollout_list.numbers(db, step.branch_id, [sample]).get(sample)
        if bodies:
            question = db.execute(
                "SELECT question FROM samples WHERE sample_id = ?", (sample,)
            ).fetchone()[0]
        attempts = _attempts(db, step, slot, bodies=bodies)
    verify = db.execute("SELECT name FROM judges WHERE judge_id = ?", (branch.judge_id,)).fetchone()
    # What judges asked is this branch's, what was played that of the branch which held it.
    holders = dict.fromkeys((held_by, step.branch_id, *branches.reuses(db, step.branch_id)))
    places = [(holder, step.plan.step, slot) for holder in holders]
    calls = [call for place in places for call in _calls(db, place, bodies=bodies)]
    return StoredGroup(
        run=run,
        branch_id=step.branch_id,
        step=step.plan.step,
        slot=slot,
        question=question,
        number=number,
        verify=verify[0] if verify else "",
        attempts=attempts,
        planned=0 if slot == MERGE else step.attempts(slot),
        calls=calls,
        failures=[failure for place in places for failure in _failures(db, place)],
    )


def _attempts(
    db: sqlite3.Connection, step: StepRow, slot: int, *, bodies: bool
) -> list[StoredAttempt]:
    body, joined = "''", ""
    if bodies:
        body, joined = "body.response", "JOIN rollout_bodies body USING (rollout_id)"
    rows = db.execute(
        f"""SELECT r.attempt, {JUDGED}, v.reward, v.extracted, v.critique, {body} AS response,
              r.finished_at {ROLLOUTS} {joined} WHERE s.branch_id = ? AND s.step = ? AND r.slot = ?
            ORDER BY r.attempt""",
        (step.branch_id, step.plan.step, slot),
    )
    return [
        StoredAttempt(
            attempt=row["attempt"],
            outcome=row["judged_outcome"],
            reason=row["judged_reason"],
            error=row["judged_error"],
            reward=row["reward"],
            extracted=row["extracted"],
            critique=row["critique"],
            response=row["response"],
            finished_at=row["finished_at"],
        )
        for row in rows
    ]


def _calls(
    db: sqlite3.Connection, place: tuple[int, int, int], *, bodies: bool
) -> list[StoredCall]:
    body, joined = "NULL AS request, NULL AS reply, 0 AS codec", ""
    if bodies:
        body, joined = "request, reply, codec", "JOIN call_bodies USING (call_id)"
    rows = db.execute(
        f"""SELECT call_id, attempt, stage, tries, name, answered_by, finish, tokens_in,
              tokens_cached, tokens_out, tokens_reasoning, cost_micro, seconds, created_at,
              prev_call_id, {body}
              FROM calls {joined} WHERE branch_id = ? AND step = ? AND slot = ? ORDER BY call_id""",
        place,
    )
    return [
        StoredCall(
            id=row["call_id"],
            attempt=row["attempt"],
            stage=row["stage"],
            is_tool=row["tries"] == 0,
            name=row["name"],
            answered_by=row["answered_by"] or "",
            finish=row["finish"],
            usage=usage_of(row),
            seconds=row["seconds"],
            created_at=row["created_at"],
            before=row["prev_call_id"],
            request=unpack(row["request"], row["codec"]) if bodies else (),
            reply=unpack(row["reply"], row["codec"]) if bodies else None,
        )
        for row in rows
    ]


def _failures(db: sqlite3.Connection, place: tuple[int, int, int]) -> list[StoredFailure]:
    rows = db.execute(
        """SELECT failure_id AS id, attempt, stage, coalesce(broken, kind) AS kind, message,
                  created_at
             FROM failures WHERE branch_id = ? AND step = ? AND slot = ? ORDER BY failure_id""",
        place,
    )
    return [StoredFailure(**row) for row in rows]
