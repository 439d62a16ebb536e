"""Changes to a library: by closing a practice step, by approvals, or outside the run's steps."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Literal

from grpo_practice.core.errors import StoreError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Edit, Library, Operation, ProposalKey
from grpo_practice.store import libraries, step_totals
from grpo_practice.store.db import Row, insert, insert_all, now
from grpo_practice.store.records import Approvals, Branch, StepResult

MERGED = -1
"""Slot of operations that no group proposed."""


def close(db: sqlite3.Connection, branch: Branch, step: int, result: StepResult) -> int:
    """Write a step's groups, lessons, operations, experiences, library and status, all or nothing.

    Returns:
        The ID of the library for the next step.

    Raises:
        StoreError: The library is not the result of applying the edits to the step's own library.
    """
    row = db.execute(
        "SELECT library_in FROM steps WHERE branch_id = ? AND step = ?", (branch.id, step)
    ).fetchone()
    library_in: int = row["library_in"]
    _check_library(libraries.load(db, library_in), result.edits, result.library, step)
    insert_all(
        db, "groups", [{"branch_id": branch.id, "step": step, **asdict(g)} for g in result.groups]
    )
    writing = Writing(db, branch, step, library_in)
    # Insert the proposals before the edits, whose rows refer to the op_ids of the proposals.
    proposals = writing.put_proposals(result)
    rows: list[tuple[Edit, Row]] = [
        (
            edit,
            {
                "source": "prune" if edit.pruned else "merge",
                "from_ops": json.dumps([proposals[key] for key in edit.behind]),
            },
        )
        for edit in result.edits
    ]
    merged = any(edit.label and not edit.pruned for edit in result.edits)
    library_out = writing.put_edits(rows, result.library, "merge" if merged else "prune")
    if result.approvals:
        library_out = _put_approvals(db, branch, step, library_out, result.approvals)
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
    # In this transaction, because reports read the sums instead of the rows once the step is
    # closed.
    step_totals.write_totals(db, branch.id, step)
    # A copy of the last step's library_out, so that finding `last` needs no search of the line.
    db.execute("UPDATE branches SET tip_library = ? WHERE branch_id = ?", (library_out, branch.id))
    return library_out


def approve(db: sqlite3.Connection, branch: Branch, step: int, approvals: Approvals) -> int:
    """Apply held operations to the library of the last closed step; return the new library's ID.

    The step's own library is kept, as the parent of the new one.
    """
    (library_in,) = db.execute(
        "SELECT library_out FROM steps WHERE branch_id = ? AND step = ?", (branch.id, step)
    ).fetchone()
    library_out = _put_approvals(db, branch, step, library_in, approvals)
    # The stats hold copies of the library's size, which must agree with the new library.
    db.execute(
        """UPDATE steps SET library_out = :library_out,
             stats = json_set(stats, '$.experiences', :n, '$.distillation.experiences', :n)
            WHERE branch_id = :branch_id AND step = :step""",
        {
            "library_out": library_out,
            "n": len(approvals.library),
            "branch_id": branch.id,
            "step": step,
        },
    )
    db.execute("UPDATE branches SET tip_library = ? WHERE branch_id = ?", (library_out, branch.id))
    return library_out


def decide(
    db: sqlite3.Connection, branch: Branch, step: int, held: Iterable[int], *, approve: bool
) -> None:
    """Insert a person's decision on held operations, without applying it to a library."""
    # The decision gets its own row, and the held operation stays as the step wrote it.
    db.executemany(
        """INSERT INTO operations (branch_id, step, slot, ordinal, source, op, target_id, text,
             status, from_ops, domains, decides)
           SELECT ?, ?, slot, ordinal, 'human', op, target_id, text, ?, from_ops, domains, op_id
             FROM operations WHERE op_id = ?""",
        [(branch.id, step, "proposed" if approve else "rejected", op_id) for op_id in held],
    )


def _put_approvals(
    db: sqlite3.Connection, branch: Branch, step: int, library_in: int, approvals: Approvals
) -> int:
    edits = [approval.edit for approval in approvals.approved]
    _check_library(libraries.load(db, library_in), edits, approvals.library, step)
    rows = list[tuple[Edit, Row]]()
    for approval in approvals.approved:
        (from_ops,) = db.execute(
            "SELECT from_ops FROM operations WHERE op_id = ?", (approval.held,)
        ).fetchone()
        row: Row = {"source": "human", "from_ops": from_ops, "decides": approval.held}
        rows.append((approval.edit, row))
    writing = Writing(db, branch, step, library_in)
    return writing.put_edits(rows, approvals.library, "approve")


def _check_library(before: Library, edits: Iterable[Edit], after: Library, step: int) -> None:
    """Raise unless applying the edits to the library `before` results in `after`.

    The merge assigns the labels, and the edits carry them here. Without this check, an experience
    lost on the way would stay in the displayed library but be missing from all prompts.
    """
    made = libraries.edited(before, edits)
    if made != after:
        shown = [", ".join(e.id for e in it.experiences) or "none" for it in (made, after)]
        raise StoreError(
            f"step {step} was not closed: its operations produce a library of {shown[0]}, but the"
            f" given library has {shown[1]}",
            hint="code that changes the library after the merge must also change the edits",
        )


class Writing:
    """Converts the operations of one step to rows, and tracks the library that they edit.

    Without a step, the operations edit a library outside the run's steps.
    """

    def __init__(
        self, db: sqlite3.Connection, branch: Branch, step: int | None, library_in: int
    ) -> None:
        self.db, self.branch, self.step, self._library = db, branch, step, library_in
        items = libraries.items(db, library_in)
        self._held = {label: (eid, version) for label, eid, version in items}
        """Label → (experience_id, version) of the library's current entries; edits update it."""
        self._targets = {f"E{label}": eid for label, eid, _ in items}

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

    def put_edits(
        self,
        edits: Sequence[tuple[Edit, Row]],
        library: Library,
        cause: Literal["merge", "prune", "approve", "edit"],
    ) -> int:
        """Insert the edits, each with additional columns, and the resulting library.

        Returns:
            The library's ID, which stays the same if no edit changes anything.
        """
        library_out = self._library
        if any(edit.label for edit, _ in edits):
            library_out = libraries.add_version(
                self.db,
                self.branch.run,
                library,
                cause=cause,
                parent_id=self._library,
                made_in=(self.branch.id, self.step),
            )
        # The order satisfies the foreign keys: an experience refers to the version it was born in,
        # and the version's items refer to experiences.
        for n, (edit, row) in enumerate(edits):
            self._put_edit(n, edit, library_out, row)
        if library_out != self._library:
            for position, e in enumerate(library.experiences):
                libraries.add_item(self.db, library_out, position, *self._held[e.label])
        return library_out

    def _put_edit(self, n: int, edit: Edit, library_out: int, row: Row) -> None:
        """Insert the n-th edit, and the experience or text that it creates."""
        op, label, held = edit.operation, edit.label, self._held
        if label is not None:
            row = {**row, "status": "applied"}
        if self.step is None:  # without a step, operations are linked only to the library
            row = {**row, "library_id": library_out}
        if label is None or op.op == "DELETE":
            self._insert(op, (MERGED, n), row)
            return
        if op.op == "ADD":
            born = libraries.add_experience(self.db, self.branch.run, label, library_out)
            held[label] = (born, 1)
        else:
            # Search all branches, because two of them may each rewrite an experience that they
            # share.
            latest = "SELECT max(version) FROM experience_texts WHERE experience_id = ?"
            (version,) = self.db.execute(latest, (held[label][0],)).fetchone()
            held[label] = (held[label][0], version + 1)
        row = {**row, "result_id": held[label][0], "library_id": library_out}
        op_id = self._insert(op, (MERGED, n), row)
        libraries.add_text(self.db, *held[label], op.text or "", op_id)

    def _insert(self, op: Operation, place: tuple[int, int], more: Row) -> int:
        """Insert the operation's row at `place`: (slot, ordinal)."""
        # A held operation stays `proposed` until a person decides on it.
        status = "proposed"
        if op.refused is not None and op.rule != "held":
            status = "quarantined" if op.quarantined else "refused"
        row: Row = {
            "branch_id": self.branch.id,
            "step": self.step,
            "slot": place[0],
            "ordinal": place[1],
            "op": op.op,
            "target_id": self._targets.get(op.target or ""),
            "text": op.text,
            "status": status,
            "reason": op.refused or op.why,
            "call_id": op.call_id or None,
            "domains": json.dumps(op.domains),
            "finding": op.finding,
            "rule": op.rule,
            "disproved": int(op.disproved),
        }
        return insert(self.db, "operations", row | more)


DerivedCause = Literal["edit", "prune", "approve"]
Source = Literal["human", "prune"]


def derive(
    db: sqlite3.Connection,
    branch: Branch,
    parent: Library,
    edits: Sequence[Edit],
    *,
    cause: DerivedCause,
    source: Source,
) -> Library:
    """Apply edits to a stored library, and return the stored result.

    The operations belong to no step, and the run's `last` library stays the same. If the run
    already has a library with the resulting text, that library is returned and nothing is inserted.
    """
    made = libraries.edited(parent, edits)
    # Equal texts share their scores and votes, so they must not become two libraries.
    row = db.execute(
        "SELECT library_id FROM libraries WHERE run_id = ? AND sha256 = ? ORDER BY 1",
        (branch.run, library_sha(made)),
    ).fetchone()
    if row is None:
        rows = [(edit, {"source": source, "from_ops": "[]"}) for edit in edits]
        return libraries.load(db, Writing(db, branch, None, parent.id).put_edits(rows, made, cause))
    return libraries.load(db, row["library_id"])
