"""History of a run: its branches, and the origin of each experience."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import LessonFinding, Operation, OpKind, sharpens
from grpo_practice.store import branches
from grpo_practice.store.identity import origin_of
from grpo_practice.store.queries.past_votes import VOTES_ON

ON_LINE = """EXISTS (SELECT 1 FROM json_each(:line) s
  WHERE json_extract(s.value, '$[0]') = {row}.branch_id
    AND {row}.step >= json_extract(s.value, '$[1]') AND {row}.step < json_extract(s.value, '$[2]'))
"""
"""Condition that `{row}` belongs to a step on `:line`, which `line_json` returns."""


@dataclass(frozen=True, slots=True)
class BranchRow:
    """A branch, for lists."""

    id: int
    parent_id: int | None
    from_step: int
    cause: str
    is_head: bool
    created_at: str
    origin: str | None
    """Origin of the weights that a member of a population copied; None for its own weights."""

    @property
    def text(self) -> str:
        """Number, cause and first step in words."""
        origin = f", weights of {self.origin}" if self.origin else ""
        return f"{self.id} ({self.cause} at step {self.from_step}{origin})"


@dataclass(frozen=True, slots=True)
class GroupProposal:
    """Proposal of one group, with the lessons the group drew."""

    slot: int
    number: int | None
    """Number of its question in the dataset of the run, counted from 1."""
    question: str
    op: OpKind
    target: str | None
    text: str | None
    finding: LessonFinding | None
    lessons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A text that was kept out of the library."""

    id: str
    """ID for `experiences approve`, such as `Q12`."""
    step: int
    source: str
    """Source: `propose` for one group's proposal, `merge` for a merged text."""
    slot: int | None
    """Group that proposed the text; None for a merged text."""
    number: int | None
    """Number of its question in the dataset of the run, counted from 1."""
    question: str | None
    op: str
    target: str | None
    """Experience that the text would have rewritten."""
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class LibraryChange:
    """A merged operation that added, rewrote or removed an experience."""

    op: OpKind
    step: int | None
    """Step of the operation; None for a library made outside the run's steps."""
    branch_id: int
    text: str | None
    """Text of the experience afterwards; None if it was removed."""
    reworded: bool
    """True if the experience keeps its meaning, and is only clearer or more general."""
    proposals: tuple[GroupProposal, ...]
    domains: tuple[str, ...]
    """Web sites that the groups behind the operation had read."""
    why: str | None
    """Reason for a removal that no merge requested."""
    held_since: int | None
    """Step that held the operation until a person approved it; None if it was never held."""


@dataclass(frozen=True, slots=True)
class Vote:
    """A group that named the experience, and its comparison's finding about it."""

    step: int
    slot: int
    number: int | None
    """Number of its question in the dataset of the run, counted from 1."""
    question: str
    op: OpKind
    finding: LessonFinding | None
    earlier: bool
    """True for a vote on an earlier text with another meaning."""
    without: bool
    """True for a vote against the experience by a group that was played without it."""

    @property
    def uncounted(self) -> str:
        """Reason why the vote does not count as evidence; '' if it counts."""
        if self.earlier:
            return "not counted: on an earlier text"
        return "not counted: played without it" if self.without else ""

    @property
    def said(self) -> str:
        """The finding in words, or the operation if the group gave no finding."""
        named = {
            "ADD": "repeated",
            "NONE": "confirmed",
            "DELETE": "to be removed",
            "UPDATE": "to be changed",
        }
        return (self.finding or named.get(self.op, self.op)).replace("_", " ")


@dataclass(frozen=True, slots=True)
class ExperienceHistory:
    """An experience of a run, with all its changes and votes."""

    id: str
    run: str
    imported: str | None
    """Text at the start of the run, if the experience was imported."""
    changes: tuple[LibraryChange, ...]
    """Changes on the branch's line, oldest first."""
    votes: tuple[Vote, ...] = ()
    """Votes on all its texts on the branch's line, oldest first."""

    @property
    def text(self) -> str | None:
        """Current text; None if the experience was removed."""
        return self.changes[-1].text if self.changes else self.imported


_NUMBER = """(SELECT min(d.position) + 1 FROM dataset_rows d
                 WHERE d.dataset_id = (SELECT b.dataset_id FROM branches b
                                        WHERE b.branch_id = o.branch_id)
                   AND d.sample_id = g.sample_id) AS number"""
"""SQL of the question number of a group `g` of an operation `o`, as in lists of rollouts."""


_MADE_OF = """(WITH RECURSIVE up(library_id) AS (
    SELECT :library UNION
    SELECT l.parent_id FROM libraries l JOIN up USING (library_id) WHERE l.parent_id IS NOT NULL)
  SELECT library_id FROM up)"""
"""SQL of `:library` and all its ancestors."""


def branches_of(db: sqlite3.Connection, run: str) -> list[BranchRow]:
    """Return the branches of a run, oldest first."""
    rows = db.execute(
        """SELECT b.branch_id, b.parent_id, b.from_step, b.cause, b.branch_id = r.head_branch,
                  b.created_at, b.identity
             FROM branches b JOIN runs r USING (run_id) WHERE run_id = ? ORDER BY b.branch_id""",
        (run,),
    )
    return [
        BranchRow(i, parent, at, cause, bool(head), t, origin_of(json.loads(identity)))
        for i, parent, at, cause, head, t, identity in rows
    ]


def experience(
    db: sqlite3.Connection, run: str, label: int, *, branch: int, until: int, library: int
) -> ExperienceHistory:
    """Return the origin and history of the experience `E<label>` of a run's library.

    `until` is the last step that is read; -1 stands for the library that the run started with.
    Libraries that a person or a comparison made outside the run's steps have labels of their own.

    Raises:
        ConfigError: The library and its ancestors never had an experience with this label.
    """
    at = {"run": run, "label": label, "line": line_json(db, branch, until), "library": library}
    row = db.execute(
        f"""SELECT e.experience_id, CASE WHEN l.cause = 'import' THEN t.text END
              FROM experiences e JOIN libraries l ON l.library_id = e.born_in
              JOIN experience_texts t ON t.experience_id = e.experience_id AND t.version = 1
             WHERE e.run_id = :run AND e.label = :label AND e.born_in IN {_MADE_OF}
             ORDER BY e.experience_id DESC LIMIT 1""",
        at,
    ).fetchone()
    if row is None:
        raise ConfigError(
            f"{run} has no experience E{label}",
            hint=f"grpo-practice experiences list --run {quote(run)}",
        )
    at["id"] = row[0]
    changes = db.execute(
        f"""SELECT o.op, o.step, o.branch_id, t.text, o.from_ops, o.domains, o.reason, h.step
              FROM operations o
              LEFT JOIN experience_texts t ON t.op_id = o.op_id
              LEFT JOIN operations h ON h.op_id = o.decides
             WHERE :id IN (o.result_id, o.target_id) AND o.status = 'applied'
               AND ({ON_LINE.format(row="o")}
                    OR o.step IS NULL AND o.library_id IN {_MADE_OF})
             ORDER BY o.step IS NULL, o.step, o.op_id""",
        at,
    )
    made = [_change(db, f"E{label}", *change) for change in changes.fetchall()]
    # A rewording keeps the votes before it, so they count from the last change of the meaning.
    meant = [c.step for c in made if not c.reworded and c.text is not None]
    since = max((step for step in meant if step is not None), default=-1)
    votes = db.execute(
        f"""SELECT o.step, o.slot, {_NUMBER}, s.question, o.op, o.finding, o.step <= :since,
                   NOT EXISTS (SELECT 1 FROM library_items i WHERE i.experience_id = :id
                                AND i.library_id = coalesce(g.library_id, p.library_in))
              FROM operations o
              JOIN groups g USING (branch_id, step, slot) JOIN samples s USING (sample_id)
              JOIN steps p USING (branch_id, step)
             WHERE {VOTES_ON}
               AND {ON_LINE.format(row="o")} ORDER BY o.step, o.slot, o.op_id""",
        {**at, "since": since},
    )
    cast = tuple(
        Vote(
            step,
            slot,
            number,
            question,
            op,
            finding,
            bool(earlier),
            bool(without) and Operation(op, finding=finding).vote < 0,
        )
        for step, slot, number, question, op, finding, earlier, without in votes
    )
    return ExperienceHistory(f"E{label}", run, row[1], tuple(made), cast)


def line_json(db: sqlite3.Connection, branch: int, until: int) -> str:
    """Return the steps up to `until` on a branch's line as JSON of [branch, first step, end]."""
    line = branches.line(db, branch)
    return json.dumps([s._replace(end=min(s.end, until + 1)) for s in line])


def _change(
    db: sqlite3.Connection, name: str, op: OpKind, step: int | None, *told: Any
) -> LibraryChange:
    branch_id, text, from_ops, domains, why, held_since = told
    proposals = _proposals(db, json.loads(from_ops))
    behind = [Operation(p.op, p.target, finding=p.finding) for p in proposals]
    reworded = sharpens(Operation(op, name), behind)
    sites = tuple(json.loads(domains))
    return LibraryChange(op, step, branch_id, text, reworded, proposals, sites, why, held_since)


def quarantined(db: sqlite3.Connection, branch: int, *, until: int) -> list[Quarantined]:
    """Return the texts kept out of the libraries on a branch's line, up to step `until`."""
    rows = db.execute(
        f"""SELECT 'Q' || o.op_id AS id, o.step, o.source, nullif(o.slot, -1) AS slot, {_NUMBER},
                  s.question, o.op, 'E' || e.label AS target, o.text, o.reason
             FROM operations o
             LEFT JOIN groups g USING (branch_id, step, slot)
             LEFT JOIN samples s ON s.sample_id = g.sample_id
             LEFT JOIN experiences e ON e.experience_id = o.target_id
            WHERE o.status = 'quarantined' AND {ON_LINE.format(row="o")}
            ORDER BY o.step, o.op_id""",
        {"line": line_json(db, branch, until)},
    )
    return [Quarantined(**row) for row in rows]


def _proposals(db: sqlite3.Connection, op_ids: Sequence[int]) -> tuple[GroupProposal, ...]:
    found = []
    for op_id in op_ids:
        branch_id, step, slot, number, question, op, target, text, finding = db.execute(
            f"""SELECT o.branch_id, o.step, o.slot, {_NUMBER}, s.question, o.op, 'E' || e.label,
                      o.text, o.finding
                 FROM operations o
                 JOIN groups g USING (branch_id, step, slot) JOIN samples s USING (sample_id)
                 LEFT JOIN experiences e ON e.experience_id = o.target_id
                WHERE o.op_id = ?""",
            (op_id,),
        ).fetchone()
        lessons = db.execute(
            "SELECT text FROM lessons WHERE branch_id = ? AND step = ? AND slot = ?"
            " ORDER BY ordinal",
            (branch_id, step, slot),
        )
        told = tuple(row[0] for row in lessons)
        found.append(GroupProposal(slot, number, question, op, target, text, finding, told))
    return tuple(found)
