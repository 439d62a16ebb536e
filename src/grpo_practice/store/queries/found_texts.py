"""Texts that a search found, by their numbers, and where they stand."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text that was found."""

    run: str
    """Run that it is of; '' for a question that no run has asked."""
    branch_id: int | None
    step: int | None
    slot: int | None
    attempt: int | None
    """Attempt whose answer it is; None for any other text."""
    label: int | None
    """Number of the experience that it is of; None for any other text."""
    text: str


def answers(db: sqlite3.Connection, rollouts: Sequence[int]) -> list[FoundText]:
    """Return the answers of rollouts; those that are gone are left out."""
    rows = db.execute(
        """SELECT b.run_id, r.branch_id, r.step, r.slot, r.attempt, NULL, body.response
             FROM rollouts r JOIN branches b USING (branch_id)
             JOIN rollout_bodies body USING (rollout_id)
            WHERE r.rollout_id IN (SELECT value FROM json_each(?)) ORDER BY r.rollout_id""",
        (json.dumps(list(rollouts)),),
    )
    return [FoundText(*row) for row in rows]


def questions(db: sqlite3.Connection, samples: Sequence[int]) -> list[FoundText]:
    """Return questions, each with the place where it was asked last."""
    found = list[FoundText]()
    for sample in samples:
        row = db.execute(
            """SELECT coalesce(b.run_id, ''), r.branch_id, r.step, r.slot, NULL, NULL, s.question
                 FROM samples s
                 LEFT JOIN rollouts r ON r.rollout_id = (
                   SELECT rollout_id FROM rollouts WHERE sample_id = s.sample_id
                    ORDER BY branch_id DESC LIMIT 1)
                 LEFT JOIN branches b ON b.branch_id = r.branch_id
                WHERE s.sample_id = ?""",
            (sample,),
        ).fetchone()
        if row is not None:
            found.append(FoundText(*row))
    return found


def experiences(db: sqlite3.Connection, texts: Sequence[tuple[int, int]]) -> list[FoundText]:
    """Return texts of experiences, by experience and version."""
    found = list[FoundText]()
    for experience, version in texts:
        row = db.execute(
            """SELECT e.run_id, NULL, NULL, NULL, NULL, e.label, t.text
                 FROM experience_texts t JOIN experiences e USING (experience_id)
                WHERE t.experience_id = ? AND t.version = ?""",
            (experience, version),
        ).fetchone()
        if row is not None:
            found.append(FoundText(*row))
    return found
