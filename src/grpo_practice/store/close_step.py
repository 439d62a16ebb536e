"""The one transaction that closes a practice step."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_practice.store import libraries, step_totals
from grpo_practice.store.db import now
from grpo_practice.store.records import Branch, GroupRow, StepResult
from grpo_practice.types import Operation


def close(db: sqlite3.Connection, branch: Branch, step: int, result: StepResult) -> int:
    """Groups, lessons, operations, experiences, the library and the step's end, all or nothing.

    Returns:
        The id of the library the next step is played with.
    """
    library_in = int(
        db.execute(
            "SELECT library_in FROM steps WHERE branch_id = ? AND step = ?", (branch.id, step)
        ).fetchone()[0]
    )
    held = {f"E{label}": (eid, v) for label, eid, v in libraries.items(db, library_in)}
    _put_groups(db, branch.id, step, result.groups)
    closing = _Closing(db, branch, step, {label: eid for label, (eid, _) in held.items()})
    proposed = closing.put_proposals(result)
    library_out = library_in
    merged = any(_changes(op) for op in result.merged)
    if merged or result.pruned:
        library_out = libraries.insert(
            db,
            branch.run,
            result.library,
            cause="merge" if merged else "prune",
            parent_id=library_in,
            made_in=(branch.id, step),
        )
    closing.put_merged(result, library_out, held, proposed)
    if library_out != library_in:
        for position, e in enumerate(result.library.experiences):
            libraries.add_item(db, library_out, position, *held[e.id])
    db.execute(
        """UPDATE steps SET status = ?, library_out = ?, stats = ?, closed_at = ?
            WHERE branch_id = ? AND step = ?""",
        (
            "merge_failed" if result.failed else "closed",
            library_out,
            json.dumps(dict(result.stats)),
            now(),
            branch.id,
            step,
        ),
    )
    step_totals.keep(db, branch.id, step)
    db.execute("UPDATE branches SET tip_library = ? WHERE branch_id = ?", (library_out, branch.id))
    return library_out


def _changes(op: Operation) -> bool:
    """True when the operation was taken and does something."""
    return op.refused is None and op.op != "NONE"


def _put_groups(
    db: sqlite3.Connection, branch_id: int, step: int, groups: Sequence[GroupRow]
) -> None:
    db.executemany(
        "INSERT INTO groups VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            (
                branch_id,
                step,
                g.slot,
                g.sample_id,
                g.planned,
                g.played,
                g.scored,
                g.teachable,
                g.mean_reward,
                int(g.informative),
                g.status,
                g.reason,
                g.library_id,
            )
            for g in groups
        ),
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """What a merged operation stands for, and what it wrote."""

    stands_for: Sequence[int] = ()
    """op_ids of proposals."""
    experience_id: int | None = None
    library_id: int | None = None
    pruned: bool = False


_NOTHING = _Made()


@dataclass(frozen=True, slots=True)
class _Closing:
    """The operations of one step, as they become rows."""

    db: sqlite3.Connection
    branch: Branch
    step: int
    targets: Mapping[str, int]
    """`E12` → experience_id, for what the step's library holds."""

    def put_proposals(self, result: StepResult) -> list[int]:
        """Lessons and proposals; the op_ids in the order the merge prompt numbered them."""
        op_ids = list[int]()
        for group in result.distilled:
            for n, lesson in enumerate(group.lessons):
                self.db.execute(
                    """INSERT INTO lessons (branch_id, step, slot, ordinal, text, call_id)
                       VALUES (?,?,?,?,?,?)""",
                    (self.branch.id, self.step, group.slot, n, lesson.text, lesson.call_id),
                )
            for n, op in enumerate(group.operations):
                op_id = self._insert(op, (group.slot, n), "proposed")
                if _changes(op):
                    op_ids.append(op_id)
        return op_ids

    def put_merged(
        self,
        result: StepResult,
        library_out: int,
        held: dict[str, tuple[int, int]],
        proposed: Sequence[int],
    ) -> None:
        """The merged operations, and the new experiences and texts they make.

        `held` (`E12` → experience_id, version) then describes the new library.
        """
        texts = {e.id: e.text for e in result.library.experiences}
        added = iter(e.id for e in result.library.experiences if e.id not in held)
        for n, op in enumerate([*result.merged, *result.pruned]):
            behind = [proposed[i] for i in op.from_ops if i < len(proposed)]
            label, made = None, _Made(behind, pruned=n >= len(result.merged))
            if _changes(op) and op.op != "DELETE":
                if op.op == "ADD":
                    label = next(added)
                    held[label] = (self._born(label, library_out), 1)
                else:
                    label = op.target or ""
                    held[label] = (held[label][0], self._next_version(held[label][0]))
                made = replace(made, experience_id=held[label][0], library_id=library_out)
            op_id = self._insert(op, (-1, n), "applied" if _changes(op) else "proposed", made)
            if label is not None:
                libraries.add_text(self.db, *held[label], texts[label], op_id)

    def _insert(
        self, op: Operation, place: tuple[int, int], status: str, made: _Made = _NOTHING
    ) -> int:
        """The operation's row at `place`: (slot, ordinal); slot -1 is the merge."""
        slot, ordinal = place
        if op.refused is not None:
            status = "quarantined" if op.quarantined else "refused"
        cursor = self.db.execute(
            """INSERT INTO operations (branch_id, step, slot, ordinal, source, op, target_id, text,
                 status, reason, call_id, from_ops, result_id, library_id, domains, finding, rule)
               VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
            (
                self.branch.id,
                self.step,
                slot,
                ordinal,
                "prune" if made.pruned else "merge" if slot < 0 else "propose",
                op.op,
                self.targets.get(op.target or ""),
                op.text,
                status,
                op.refused or op.why,
                op.call_id or None,
                json.dumps(made.stands_for),
                made.experience_id,
                made.library_id,
                json.dumps(op.domains),
                op.finding,
                op.rule,
            ),
        )
        return int(cursor.lastrowid or 0)

    def _born(self, label: str, library_id: int) -> int:
        cursor = self.db.execute(
            "INSERT INTO experiences (run_id, label, born_in) VALUES (?,?,?)",
            (self.branch.run, int(label[1:]), library_id),
        )
        return int(cursor.lastrowid or 0)

    def _next_version(self, experience_id: int) -> int:
        """Versions are counted over all branches: two branches may each rewrite one."""
        row = self.db.execute(
            "SELECT max(version) + 1 FROM experience_texts WHERE experience_id = ?",
            (experience_id,),
        ).fetchone()
        return int(row[0])
