"""What closed steps hold for and against the experiences of a library: votes, and what was played.

Nothing is kept twice: a vote is a proposal's row, a play a group's row. `practice/evidence.py`
decides what they weigh.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from grpo_practice.store import branches, libraries
from grpo_practice.store.records import Branch, Past, Play
from grpo_practice.types import Library, Operation

_FOUND = """SELECT op, step, from_ops FROM operations
  WHERE branch_id = ? AND step >= ? AND step < ? AND result_id = ? AND status = 'applied'"""
_VOTES = """SELECT o.step, g.sample_id, o.op, o.finding FROM operations o
  JOIN groups g USING (branch_id, step, slot)
  WHERE o.branch_id = ? AND o.step >= ? AND o.step < ? AND o.target_id = ?
    AND o.source = 'propose' AND o.status = 'proposed'"""
_BEHIND = """SELECT g.sample_id, o.op, o.finding FROM operations o
  JOIN groups g USING (branch_id, step, slot) WHERE o.op_id IN (SELECT value FROM json_each(?))"""
_PLAYS = """SELECT g.sample_id, coalesce(g.library_id, s.library_in), g.mean_reward, g.scored,
    coalesce(json_extract(s.stats, '$.mean_reward'), g.mean_reward)
  FROM groups g JOIN steps s USING (branch_id, step)
  WHERE g.branch_id = ? AND g.step >= ? AND g.step < ? AND g.mean_reward IS NOT NULL
    AND g.sample_id IN (SELECT value FROM json_each(?)) ORDER BY g.step, g.slot"""
_SHOWN = """SELECT other.library_id, e.label FROM library_items mine
  JOIN library_items other USING (experience_id, version) JOIN experiences e USING (experience_id)
  WHERE mine.library_id = ?"""

Votes = dict[int, int]
"""Sample id → its votes for an experience less those against it."""


@dataclass(frozen=True, slots=True)
class _Line:
    """The steps before `end` on a branch's line, as (branch_id, first step, end)."""

    branch: Branch
    end: int

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for s in sorted(self.branch.line, key=lambda s: s.first):
            yield s.branch_id, s.first, min(s.end, self.end)


def past(
    db: sqlite3.Connection, branch: Branch, library: Library, asked: Iterable[int], *, end: int
) -> Past:
    """Return what the steps before `end` hold on the experiences of `library`.

    Args:
        db: The database.
        branch: The branch whose line is read.
        library: A stored library of this run.
        asked: Ids of further samples whose plays are wanted.
        end: The first step that is not read.
    """
    if not library.id:
        return Past()
    line = _Line(branch, end)
    votes = _votes(db, line, library)
    samples = sorted(set(asked).union(*votes.values()))
    shown = defaultdict[int, set[str]](set)
    for library_id, label in db.execute(_SHOWN, (library.id,)):
        shown[library_id].add(f"E{label}")
    return Past(votes, tuple(_plays(db, line, samples)), shown)


def _plays(db: sqlite3.Connection, line: _Line, samples: Collection[int]) -> Iterator[Play]:
    wanted = json.dumps(list(samples))
    for segment in line:
        for sample_id, library_id, reward, n, mean in db.execute(_PLAYS, (*segment, wanted)):
            yield Play(sample_id, library_id, reward, n, mean)


def _votes(db: sqlite3.Connection, line: _Line, library: Library) -> dict[str, Votes]:
    """Return the votes on each experience of the library, as it reads now."""
    imported: Mapping[str, Votes] | None = None
    found = dict[str, Votes]()
    for label, experience_id, _ in libraries.items(db, library.id):
        samples, since = _behind(db, line, experience_id)
        if since is None and imported is None:
            imported = _imported(db, line)
        before = {} if since is not None or imported is None else imported.get(f"E{label}", {})
        votes = Counter(before)
        votes.update(samples)
        for segment in line:
            for step, sample_id, op, finding in db.execute(_VOTES, (*segment, experience_id)):
                if since is None or step > since:
                    votes[sample_id] += Operation(op, finding=finding).vote
        found[f"E{label}"] = dict(votes)
    return found


def _behind(
    db: sqlite3.Connection, line: _Line, experience_id: int
) -> tuple[list[int], int | None]:
    """Return the samples whose proposals made an experience what it is, and the step since when.

    An update that only made it clearer or wider keeps the votes it had before, so all
    proposals count back to the operation that made it say something else. None: it was imported.
    """
    rows = [row for segment in line for row in db.execute(_FOUND, (*segment, experience_id))]
    samples = list[int]()
    for op, step, behind in sorted(rows, key=lambda row: row[1], reverse=True):
        proposals = db.execute(_BEHIND, (behind,)).fetchall()
        sharpens = op == "UPDATE" and all(Operation(o, finding=f).vote > 0 for _, o, f in proposals)
        # What names its target is counted as a vote on it; here are those that name none.
        samples += [q for q, o, _ in proposals if o == "ADD" or not sharpens]
        if not sharpens:
            return samples, step
    return samples, None


def _imported(db: sqlite3.Connection, line: _Line) -> dict[str, Votes]:
    """Return the votes that a run's start library brought along, from the run it was taken of."""
    library_id = db.execute(
        "SELECT library_id FROM branches WHERE branch_id = ?", (line.branch.line[-1].branch_id,)
    ).fetchone()[0]
    while library_id is not None:
        row = db.execute(
            "SELECT parent_id, branch_id, step, cause FROM libraries WHERE library_id = ?",
            (library_id,),
        ).fetchone()
        if row["branch_id"] is not None:
            source = _Line(branches.load(db, row["branch_id"]), row["step"] + 1)
            return _votes(db, source, libraries.load(db, library_id))
        library_id = row["parent_id"] if row["cause"] == "import" else None
    return {}
