"""Full-text search without an index: beyond 100,000 answers, a search takes seconds."""

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from grpo_practice.store.queries.rollout_list import FIRST, Place
from grpo_practice.store.records import Branch, Segment
from grpo_practice.store.step_totals import ROLLOUTS

MOST_WORDS = 8
"""Maximum number of words in a search; further words are ignored."""
AROUND = 70
"""Number of characters shown before and after a hit."""


def words_of(text: str) -> list[str]:
    """Return the distinct words of a search as plain text, with any special characters."""
    # SQLite's patterns end at a NUL.
    words = text.replace("\0", " ").casefold().split()
    return [*dict.fromkeys(word[:100] for word in words)][:MOST_WORDS]


@dataclass(frozen=True, slots=True)
class ExperienceHit:
    """An experience with the words in its text."""

    run: str
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class QuestionHit:
    """A question with the words in it."""

    sample: int
    text: str
    runs: Sequence[str]
    """Some of the runs that have played the question."""


@dataclass(frozen=True, slots=True)
class AnswerHit:
    """A rollout with the words in its answer."""

    run: str
    branch_id: int
    """Branch that holds the step."""
    place: Place
    text: str


def find_experiences(
    db: sqlite3.Connection, words: Sequence[str], run: str | None, most: int
) -> list[ExperienceHit]:
    """Return the experiences that contain all words in any version, newest first."""
    rows = db.execute(
        f"""SELECT e.run_id, e.label, t.text FROM experience_texts t
             JOIN experiences e USING (experience_id)
            WHERE {_all_in("t.text", words)} AND (? IS NULL OR e.run_id = ?)
            GROUP BY e.experience_id ORDER BY e.experience_id DESC LIMIT ?""",
        (*map(_pattern, words), run, run, most),
    )
    return [ExperienceHit(name, f"E{label}", around(text, words)) for name, label, text in rows]


def find_questions(
    db: sqlite3.Connection, words: Sequence[str], dataset_id: int | None, most: int
) -> list[QuestionHit]:
    """Return the first questions that contain all words, in one dataset or in all."""
    of = "samples" if dataset_id is None else "dataset_rows JOIN samples USING (sample_id)"
    where = "" if dataset_id is None else "AND dataset_id = ?"
    rows = db.execute(
        f"""SELECT sample_id, question FROM {of}
             WHERE {_all_in("question", words)} {where} LIMIT ?""",
        (*map(_pattern, words), *([] if dataset_id is None else [dataset_id]), most),
    ).fetchall()
    return [QuestionHit(sample, around(text, words), _runs_of(db, sample)) for sample, text in rows]


def find_answers(
    db: sqlite3.Connection,
    branch: Branch | None,
    words: Sequence[str],
    after: tuple[int, Place],
    most: int,
) -> list[AnswerHit]:
    """Return the next rollouts whose answers contain all words; it may read all answers.

    Args:
        db: The open database.
        branch: Branch on whose line to search; None for all branches.
        words: Words as `words_of` returns them.
        after: Branch and position of the last hit of the previous page.
        most: Maximum number of hits to return.
    """
    line = _branches(db) if branch is None else [(branch.run, s) for s in reversed(branch.line)]
    hits, (last, place) = list[AnswerHit](), after
    for run, segment in line:
        if segment.branch_id < last:
            continue  # read on an earlier page: ids increase along a line, since a parent is older
        begin = place if segment.branch_id == last else FIRST
        # Over all branches, a rollout must be found only in the branch that played it, not again
        # in the branches that score it.
        rows = db.execute(
            f"""SELECT s.step, r.slot, r.attempt, t.response {ROLLOUTS}
                 JOIN rollout_bodies t ON t.rollout_id = r.rollout_id
                WHERE s.branch_id = ? AND s.step >= ? AND s.step < ?
                  AND (s.step, r.slot, r.attempt) > (?, ?, ?) AND (? OR s.played_by IS NULL)
                ORDER BY s.step, r.slot, r.attempt""",
            (
                *(segment.branch_id, max(segment.first, begin.step), segment.end),
                *(*astuple(begin), branch is not None),
            ),
        )
        for *at, response in rows:
            # Not LIKE, which only ignores the case of ASCII letters.
            folded = response.casefold()
            if all(word in folded for word in words):
                text = around(response, words)
                hits.append(AnswerHit(run, segment.branch_id, Place(*at), text))
            if len(hits) == most:
                return hits
    return hits


def _branches(db: sqlite3.Connection) -> list[tuple[str, Segment]]:
    """Return each branch with its run, as one segment of steps, oldest first."""
    rows = db.execute(
        """SELECT run_id, branch_id, (SELECT coalesce(max(step), 0) + 1 FROM steps s
                                       WHERE s.branch_id = b.branch_id)
             FROM branches b ORDER BY branch_id"""
    )
    return [(run, Segment(branch, 0, end)) for run, branch, end in rows]


def around(text: str, words: Sequence[str]) -> str:
    """Return the part of a text around the first hit of any word."""
    folded = text.casefold()
    # Case folding may lengthen a text, so the position is only approximate.
    at = min((i for i in map(folded.find, words) if i >= 0), default=0)
    begin, end = max(at - AROUND, 0), at + 2 * AROUND
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"


def _runs_of(db: sqlite3.Connection, sample: int) -> list[str]:
    rows = db.execute(
        """SELECT r.run_id FROM runs r WHERE EXISTS (
             SELECT 1 FROM rollouts o WHERE o.sample_id = ? AND o.branch_id = r.head_branch)
            ORDER BY r.rowid DESC LIMIT 3""",
        (sample,),
    )
    return [name for (name,) in rows]


def _all_in(column: str, words: Sequence[str]) -> str:
    return " AND ".join([f"{column} LIKE ? ESCAPE '\\'"] * len(words))


def _pattern(word: str) -> str:
    # The backslash first, or the escapes added for % and _ would themselves be escaped.
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
