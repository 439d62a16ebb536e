"""Reads the evidence of closed steps on the experiences of a library: votes and plays.

No evidence is stored twice: a vote is the row of a proposal, and a play is the row of a group.
`practice/evidence.py` decides how to weigh them.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from grpo_practice.core.types import Library, Operation, one_vote, sharpens
from grpo_practice.store import branches, libraries
from grpo_practice.store.records import Branch, Part, Past, Play, Segment

_MADE = """SELECT op_id, op, step, target_id, from_ops FROM operations
  WHERE branch_id = ? AND step >= ? AND step < ? AND result_id = ? AND status = 'applied'"""
VOTES_ON = """o.source = 'propose' AND o.status = 'proposed' AND (o.target_id = :id
    OR o.target_id IS NULL AND o.op_id IN (SELECT p.value FROM operations m, json_each(m.from_ops) p
      WHERE m.target_id = :id AND m.op = 'NONE' AND m.source = 'merge'))"""
"""SQL condition: proposal `o` names experience `:id`, or repeats it according to a merge."""
_VOTES = f"""SELECT o.step, g.sample_id, coalesce(g.library_id, s.library_in), o.op, o.finding
  FROM operations o JOIN groups g USING (branch_id, step, slot) JOIN steps s USING (branch_id, step)
  WHERE o.branch_id = :branch AND o.step >= :start AND o.step < :end AND {VOTES_ON}"""
_SUBJECTS = """SELECT o.target_id, g.sample_id
    FROM operations o JOIN groups g USING (branch_id, step, slot)
    WHERE o.branch_id = :branch AND o.step >= :start AND o.step < :end
      AND o.source = 'propose' AND o.status = 'proposed' AND o.target_id IS NOT NULL
  UNION SELECT coalesce(m.result_id, m.target_id), g.sample_id
    FROM operations m, json_each(m.from_ops) p JOIN operations o ON o.op_id = p.value
      JOIN groups g ON (g.branch_id, g.step, g.slot) = (o.branch_id, o.step, o.slot)
    WHERE m.branch_id = :branch AND m.step >= :start AND m.step < :end
      AND (m.status = 'applied' OR m.op = 'NONE' AND m.target_id IS NOT NULL)"""
_DISPROVED = """SELECT t.text FROM operations o JOIN steps s USING (branch_id, step)
  JOIN library_items i ON i.library_id = s.library_in AND i.experience_id = o.target_id
  JOIN experience_texts t USING (experience_id, version)
  WHERE o.branch_id = ? AND o.step >= ? AND o.step < ? AND o.disproved AND o.status = 'applied'
  ORDER BY o.op_id"""
_BEHIND = """SELECT g.sample_id, o.op, o.target_id, o.finding FROM operations o
  JOIN groups g USING (branch_id, step, slot) WHERE o.op_id IN (SELECT value FROM json_each(?))"""
_PLAYS = """SELECT g.sample_id, coalesce(g.library_id, s.library_in) AS library_id,
    g.mean_reward, g.scored, g.parts,
    coalesce(json_extract(s.stats, '$.mean_reward'), g.mean_reward) AS mean
  FROM groups g JOIN steps s USING (branch_id, step)
  WHERE g.branch_id = ? AND g.step >= ? AND g.step < ? AND g.mean_reward IS NOT NULL
  ORDER BY g.step, g.slot"""
_SHOWN = """SELECT i.library_id FROM library_items i JOIN experience_texts t
    USING (experience_id, version)
  WHERE i.experience_id = :experience AND (i.version = :version
    OR t.op_id IN (SELECT value FROM json_each(:ops)) OR (:imported AND t.op_id IS NULL))"""
_FAMILIES = """SELECT s.sample_id, s.cluster FROM branches b
    JOIN dataset_rows d USING (dataset_id) JOIN samples s USING (sample_id)
  WHERE b.branch_id = ? AND s.cluster <> ''"""
Votes = dict[int, int]
"""Sample id → its votes for an experience minus its votes against it, at most one per step."""


@dataclass(frozen=True, slots=True)
class _Meaning:
    """Origin of an experience's current meaning, regardless of later rewording."""

    since: int | None = None
    """Step in which the experience got this meaning; None for the start of the run."""
    op_ids: Sequence[int] = ()
    """Operations that have set the experience's wording since then."""
    samples: frozenset[int] = frozenset()
    """Samples behind these operations that have no other vote there."""


def past(db: sqlite3.Connection, branch: Branch, library: Library, *, end: int) -> Past:
    """Return the evidence of the steps before `end` on the experiences of `library`."""
    if not library.id:
        return Past()
    line, shown = _steps_before(branch, end), defaultdict[int, set[str]](set)
    votes = _votes(db, line, library, shown)
    rows = (row for segment in line for row in db.execute(_PLAYS, segment))
    plays = [play for row in rows for play in _plays(row)]
    texts = (text for segment in line for (text,) in db.execute(_DISPROVED, segment))
    disproved, families = tuple(dict.fromkeys(texts)), db.execute(_FAMILIES, (branch.id,))
    return Past(votes, plays, shown, _subjects(db, line), disproved, dict(families.fetchall()))


def _subjects(db: sqlite3.Connection, line: Sequence[Segment]) -> Sequence[Set[int]]:
    """Return `Past.subjects`; the order is that of the experiences."""
    found = defaultdict[int, set[int]](set)
    for branch, start, end in line:
        at = {"branch": branch, "start": start, "end": end}
        for experience_id, sample_id in db.execute(_SUBJECTS, at):
            found[experience_id].add(sample_id)
    return [samples for _, samples in sorted(found.items())]


def _plays(row: sqlite3.Row) -> list[Play]:
    whole = [Part(frozenset(), row["mean_reward"], row["scored"])]
    parts = [Part(frozenset(gone), *of) for gone, *of in json.loads(row["parts"] or "[]")]
    return [Play(row["sample_id"], row["library_id"], p, row["mean"]) for p in parts or whole]


def _steps_before(branch: Branch, end: int) -> list[Segment]:
    """Return the branch's line up to `end`, oldest segment first."""
    return [s._replace(end=min(s.end, end)) for s in reversed(branch.line)]


def _votes(
    db: sqlite3.Connection, line: Sequence[Segment], library: Library, shown: dict[int, set[str]]
) -> dict[str, Votes]:
    """Return the votes on each experience of the library; fill `shown` (see `Past.shown`)."""
    imported: Mapping[str, Votes] | None = None
    found = dict[str, Votes]()
    for label, experience_id, version in libraries.items(db, library.id):
        name, meaning = f"E{label}", _meaning(db, line, experience_id)
        asked = {
            "experience": experience_id,
            "version": version,
            "ops": json.dumps(list(meaning.op_ids)),
            "imported": meaning.since is None,
        }
        holders = {library_id for (library_id,) in db.execute(_SHOWN, asked)}
        for library_id in holders:
            shown[library_id].add(name)
        # Read at most once, and only if an experience is older than the run.
        if meaning.since is None and imported is None:
            imported = _imported(db, line)
        brought = imported.get(name, {}) if meaning.since is None and imported else {}
        votes = Counter(brought)
        # Not `+`, which drops negative counts: the votes against the experience.
        votes.update(meaning.samples)
        for (_, sample_id), total in _cast(db, line, experience_id, meaning, holders).items():
            votes[sample_id] += one_vote(total)
        found[name] = dict(votes)
    return found


def _cast(
    db: sqlite3.Connection,
    line: Sequence[Segment],
    experience_id: int,
    meaning: _Meaning,
    holders: Collection[int],
) -> Counter[tuple[int, int]]:
    """Return (step, sample id) → sum of votes by its proposals since the current meaning began.

    Only a group that was played with the experience can vote against it.
    """
    cast = Counter[tuple[int, int]]()
    for branch, start, end in line:
        at = {"branch": branch, "start": start, "end": end, "id": experience_id}
        rows = db.execute(_VOTES, at)
        for step, sample_id, library_id, op, finding in rows:
            vote = Operation(op, finding=finding).vote
            since = meaning.since is None or step > meaning.since
            if since and (vote > 0 or library_id in holders):
                cast[step, sample_id] += vote
    return cast


def _meaning(db: sqlite3.Connection, line: Sequence[Segment], experience_id: int) -> _Meaning:
    """Return the origin of an experience's current meaning.

    An update that only made the experience clearer or more general keeps the earlier votes, so
    proposals count from the last operation that changed the meaning.
    """
    rows = [row for segment in line for row in db.execute(_MADE, (*segment, experience_id))]
    op_ids, samples = list[int](), set[int]()
    for op_id, op, step, target, behind in sorted(rows, key=lambda row: row[2], reverse=True):
        proposals = [
            (sample, Operation(o, None if at is None else str(at), finding=finding))
            for sample, o, at, finding in db.execute(_BEHIND, (behind,))
        ]
        reworded = sharpens(Operation(op, str(target)), [p for _, p in proposals])
        op_ids.append(op_id)
        # A proposal that names its target is already counted as a vote on it by `_cast`.
        samples |= {sample for sample, p in proposals if p.target is None or not reworded}
        if not reworded:
            return _Meaning(step, op_ids, frozenset(samples))
    return _Meaning(None, op_ids, frozenset(samples))


def _imported(db: sqlite3.Connection, line: Sequence[Segment]) -> dict[str, Votes]:
    """Return the votes that a run's first library inherits from the run that it comes from."""
    library_id = db.execute(
        "SELECT library_id FROM branches WHERE branch_id = ?", (line[0].branch_id,)
    ).fetchone()[0]
    held = library_id
    while library_id is not None:
        row = db.execute(
            "SELECT parent_id, branch_id, step FROM libraries WHERE library_id = ?", (library_id,)
        ).fetchone()
        if row["branch_id"] is not None:
            last = db.execute(  # includes later steps that left the library unchanged
                "SELECT max(step) FROM steps WHERE branch_id = ? AND library_out = ?",
                (row["branch_id"], library_id),
            ).fetchone()[0]
            last = row["step"] if last is None else last
            if last is not None:
                source = _steps_before(branches.load(db, row["branch_id"]), last + 1)
                return _votes(db, source, libraries.load(db, held), defaultdict(set))
        else:
            held = row["parent_id"]
        # A library that no step made inherits the votes of its parent.
        library_id = row["parent_id"]
    return {}
