"""Finds words in what is stored: each search reads so many rows and no more, whatever there is.

Before an index over texts is made, a part of them is read at a time, and the next goes on there.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.store.queries.pages import Place, stretches
from grpo_practice.store.records import Branch
from grpo_practice.store.step_totals import ROLLOUTS

MOST_WORDS = 8
"""Words of a search that are looked for; the others are passed over."""
AROUND = 70
"""Characters before and after a hit."""


def words_of(text: str) -> list[str]:
    """Return the words of a search, each once: plain text, whatever signs are in them."""
    # A NUL ends a pattern of SQLite's.
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
    """Some of the runs that have played it."""


@dataclass(frozen=True, slots=True)
class AnswerHit:
    """A rollout with the words in its answer."""

    ref: str
    """Run and branch: `RUN@BRANCH`."""
    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class AnswerHits:
    """Rollouts with the words in their answers, as far as was looked."""

    hits: Sequence[AnswerHit]
    looked: Place | None
    """Last rollout that was looked at; None where there is none after it."""


def find_experiences(
    db: sqlite3.Connection, words: Sequence[str], run: str | None, most: int
) -> list[ExperienceHit]:
    """Return experiences of any version with all of the words, the newest first."""
    rows = db.execute(
        f"""SELECT e.run_id, e.label, t.text FROM experience_texts t
             JOIN experiences e USING (experience_id)
            WHERE {_all_in("t.text", words)} AND (? IS NULL OR e.run_id = ?)
            GROUP BY e.experience_id ORDER BY e.experience_id DESC LIMIT ?""",
        (*map(_pattern, words), run, run, most),
    )
    return [ExperienceHit(name, f"E{label}", around(text, words)) for name, label, text in rows]


def find_questions(
    db: sqlite3.Connection, words: Sequence[str], dataset_id: int | None, looked: int, most: int
) -> list[QuestionHit]:
    """Return questions with all of the words, of a dataset or of all, among the first `looked`."""
    of = "samples" if dataset_id is None else "dataset_rows JOIN samples USING (sample_id)"
    where = "" if dataset_id is None else "WHERE dataset_id = ?"
    rows = db.execute(
        f"""SELECT sample_id, question FROM
              (SELECT sample_id, question FROM {of} {where} LIMIT ?)
             WHERE {_all_in("question", words)} LIMIT ?""",
        (*([] if dataset_id is None else [dataset_id]), looked, *map(_pattern, words), most),
    ).fetchall()
    return [QuestionHit(sample, around(text, words), _runs_of(db, sample)) for sample, text in rows]


def find_answers(
    db: sqlite3.Connection,
    branch: Branch,
    words: Sequence[str],
    after: Place,
    *,
    looked: int,
    most: int,
) -> AnswerHits:
    """Return rollouts of a line with all of the words in their answers, among the next `looked`."""
    hits, left, last = list[AnswerHit](), looked, after
    for _, where, values in stretches(branch, after, None):
        rows = db.execute(
            f"""SELECT s.step, r.slot, r.attempt, t.response {ROLLOUTS}
                 JOIN rollout_bodies t ON t.rollout_id = r.rollout_id WHERE {where}
                 ORDER BY s.step, r.slot, r.attempt LIMIT ?""",
            (*values, left),
        )
        for step, slot, attempt, response in rows:
            last, left = Place(step, slot, attempt), left - 1
            folded = response.casefold()
            if all(word in folded for word in words):
                hits.append(AnswerHit(f"{branch.run}@{branch.id}", last, around(response, words)))
            if not left or len(hits) == most:
                return AnswerHits(hits, last)
    return AnswerHits(hits, None)


def answers_of(
    db: sqlite3.Connection, branch: Branch | None, rollouts: Sequence[int], words: Sequence[str]
) -> list[AnswerHit]:
    """Return those of some rollouts that have all of the words, on a line or on any, by number."""
    rows = db.execute(
        """SELECT b.run_id, r.branch_id, r.step, r.slot, r.attempt, t.response FROM rollouts r
             JOIN rollout_bodies t USING (rollout_id) JOIN branches b USING (branch_id)
            WHERE r.rollout_id IN (SELECT value FROM json_each(?)) ORDER BY r.rollout_id""",
        (json.dumps(list(rollouts)),),
    )
    found = list[AnswerHit]()
    line = branch.line if branch is not None else ()
    ends = {segment.branch_id: (segment.first, segment.end) for segment in line}
    for run, holder, step, slot, attempt, response in rows:
        first, end = ends.get(holder, (0, step + 1))  # held by a run that this one scores again
        folded = response.casefold()
        if first <= step < end and all(word in folded for word in words):
            place = Place(step, slot, attempt)
            found.append(AnswerHit(f"{run}@{holder}", place, around(response, words)))
    return found


def around(text: str, words: Sequence[str]) -> str:
    """Return the stretch of a text around the first of the words."""
    folded = text.casefold()
    # Folding may lengthen a text: the place is near enough for a stretch.
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
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
