"""The one transaction that closes a practice step."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from grpo_practice.errors import StoreError
from grpo_practice.store import libraries, step_totals
from grpo_practice.store.db import Row, insert, insert_all, now
from grpo_practice.store.records import Branch, StepResult
from grpo_practice.types import Edit, Experience, Library, Operation, ProposalKey

MERGED = -1
"""Slot of the operations that no group proposed."""


def close(db: sqlite3.Connection, branch: Branch, step: int, result: StepResult) -> int:
    """Write a step's groups, lessons, operations, experiences, library and end, all or nothing.

    Returns:
        The id of the library the next step is played with.

    Raises:
        StoreError: The library is not the one that the edits make of the step's own.
    """
    row = db.execute(
        "SELECT library_in FROM steps WHERE branch_id = ? AND step = ?", (branch.id, step)
    ).fetchone()
    library_in: int = row["library_in"]
    _check_library(libraries.load(db, library_in), result, step)
    insert_all(
        db, "groups", [{"branch_id": branch.id, "step": step, **asdict(g)} for g in result.groups]
    )
    held = {label: (eid, version) for label, eid, version in libraries.items(db, library_in)}
    closing = _Closing(db, branch, step, {f"E{label}": eid for label, (eid, _) in held.items()})
    # Before the edits, whose rows name the op_ids of the proposals behind them.
    proposals = closing.put_proposals(result)
    library_out = library_in
    # Without an edit no version is made: equal ids say that the step changed nothing.
    if any(edit.label for edit in result.edits):
        merged = any(edit.label and not edit.pruned for edit in result.edits)
        library_out = libraries.add_version(
            db,
            branch.run,
            result.library,
            cause="merge" if merged else "prune",
            parent_id=library_in,
            made_in=(branch.id, step),
        )
    # Between version and items, for the foreign keys: experiences name the library that they were
    # born in, and the library's items name the experiences.
    for n, edit in enumerate(result.edits):
        closing.put_edit(n, edit, library_out, held, proposals)
    if library_out != library_in:
        for position, e in enumerate(result.library.experiences):
            libraries.add_item(db, library_out, position, *held[e.label])
    db.execute(
        """UPDATE steps SET status = :status, library_out = :library_out, stats = :stats,
             unanswered = :unanswered, closed_at = :closed_at
            WHERE branch_id = :branch_id AND step = :step""",
        {
            "status": "merge_failed" if result.failed else "closed",
            "library_out": library_out,
            "stats": json.dumps(dict(result.stats)),
            "unanswered": int(result.unanswered),
            "closed_at": now(),
            "branch_id": branch.id,
            "step": step,
        },
    )
    # In this transaction: once the step is closed, reports read the sums instead of the rows.
    step_totals.write_totals(db, branch.id, step)
    db.execute("UPDATE branches SET tip_library = ? WHERE branch_id = ?", (library_out, branch.id))
    return library_out


def _check_library(before: Library, result: StepResult, step: int) -> None:
    """Raise unless the library is what the edits make of the one before.

    Labels are decided by the merge and arrive with the edits. An experience that is lost between
    there and here would otherwise stay in the library that is shown, and be in no prompt.
    """
    texts = {e.label: e.text for e in before.experiences}
    next_label = before.next_label
    for edit in result.edits:
        if edit.label is None:
            continue
        if edit.operation.op == "DELETE":
            del texts[edit.label]
        else:
            texts[edit.label] = edit.operation.text or ""
            next_label = max(next_label, edit.label + 1)
    made = Library(tuple(Experience(*item) for item in texts.items()), next_label)
    if made != result.library:
        shown = [", ".join(e.id for e in it.experiences) or "none" for it in (made, result.library)]
        raise StoreError(
            f"step {step} is not closed: its operations make a library of {shown[0]}, and it was"
            f" given one of {shown[1]}",
            hint="what changes the library after the merge has to change the edits, too",
        )


@dataclass(frozen=True, slots=True)
class _Closing:
    """The operations of one step, as they become rows."""

    db: sqlite3.Connection
    branch: Branch
    step: int
    targets: Mapping[str, int]
    """`E12` → experience_id, for what the step's library holds."""

    def put_proposals(self, result: StepResult) -> dict[ProposalKey, int]:
        """Insert lessons and proposals; return the op_id of each proposal."""
        op_ids = dict[ProposalKey, int]()
        for group in result.distilled:
            for n, lesson in enumerate(group.lessons):
                row: Row = {"branch_id": self.branch.id, "step": self.step, "slot": group.slot}
                row |= {"ordinal": n, "text": lesson.text, "call_id": lesson.call_id}
                insert(self.db, "lessons", row)
            for n, op in enumerate(group.operations):
                op_ids[group.slot, n] = self._insert(op, (group.slot, n), {"source": "propose"})
        return op_ids

    def put_edit(
        self,
        n: int,
        edit: Edit,
        library_out: int,
        held: dict[int, tuple[int, int]],
        proposals: Mapping[ProposalKey, int],
    ) -> None:
        """Insert the n-th edit, and the experience or the text that it makes.

        `held` (label → experience_id, version) then describes the new library.
        """
        op, label = edit.operation, edit.label
        row: Row = {
            "source": "prune" if edit.pruned else "merge",
            "from_ops": json.dumps([proposals[key] for key in edit.behind]),
        }
        if label is not None:
            row["status"] = "applied"
        if label is None or op.op == "DELETE":
            self._insert(op, (MERGED, n), row)
            return
        if op.op == "ADD":
            born = libraries.add_experience(self.db, self.branch.run, label, library_out)
            held[label] = (born, 1)
        else:
            # Over all branches: two may each rewrite an experience that both have.
            latest = "SELECT max(version) FROM experience_texts WHERE experience_id = ?"
            (version,) = self.db.execute(latest, (held[label][0],)).fetchone()
            held[label] = (held[label][0], version + 1)
        row |= {"result_id": held[label][0], "library_id": library_out}
        op_id = self._insert(op, (MERGED, n), row)
        libraries.add_text(self.db, *held[label], op.text or "", op_id)

    def _insert(self, op: Operation, place: tuple[int, int], more: Row) -> int:
        """Insert the operation's row at `place`: (slot, ordinal)."""
        status = "proposed"
        if op.refused is not None:
            status = "quarantined" if op.quarantined else "refused"
        row: Row = {
            "branch_id": self.branch.id,
            "step": self.step,
            "slot": place[0],
            "ordinal": place[1],
            "op": op.op,
            "target_id": self.targets.get(op.target or ""),
            "text": op.text,
            "status": status,
            "reason": op.refused or op.why,
            "call_id": op.call_id or None,
            "domains": json.dumps(op.domains),
            "finding": op.finding,
            "rule": op.rule,
        }
        return insert(self.db, "operations", row | more)
