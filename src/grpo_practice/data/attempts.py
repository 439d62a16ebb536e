"""Recorded attempts on their way to the store, grouped by question, in a temporary file on disk."""

import json
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grpo_practice.core.calls import Message, content_texts
from grpo_practice.core.hashing import clean_json, digest, list_digest, text_sha
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import brief, count, folded
from grpo_practice.core.types import Sample
from grpo_practice.data.staged_samples import COLUMNS, ROWS_IN_MEMORY, columns_of, sample_of
from grpo_practice.data.text_lines import lines

MAX_CHARS = 1_000_000
"""Maximum number of characters in a line of a file."""
MOST = 20
"""Maximum number of attempts at a question that are compared."""
NAMED = 3
"""Maximum number of places named for each reason to leave attempts out."""

_TABLE = f"""
CREATE TABLE attempts (position INTEGER PRIMARY KEY, place TEXT, key BLOB, sha BLOB, reward REAL,
  model TEXT, {", ".join(COLUMNS)}, response TEXT, messages TEXT)"""
# Conditions on the attempts at a question.
_TWO_ANSWERS = "count(DISTINCT answer) > 1"
_ALONE = "count(*) = 1"
_EQUAL = "count(reward) = count(*) AND min(reward) = max(reward)"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a question that an agent made before the run."""

    sample: Sample
    response: str
    messages: Sequence[Message] = ()
    """Whole conversation, if it was recorded."""
    reward: float | None = None
    """Recorded reward; None if the attempt has to be scored."""
    model: str = ""
    group: str | None = None
    """Name of the question; None groups by its text."""


class Recorded(NamedTuple):
    """A staged attempt."""

    response: str
    before: str
    """Messages before the response, as JSON."""
    reward: float | None


class AttemptError(ValueError):
    """Raised for an attempt that cannot be used; the message gives the reason."""


class StagedAttempts:
    """Attempts on disk; 100,000 of them take a few megabytes of memory.

    The file has no name and disappears with this object.
    """

    def __init__(self) -> None:
        # The store's writer thread reads this while the thread that filled it waits.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._db.close)
        # Safe, because nobody needs this file after a crash. It is never committed.
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(_TABLE)
        self._db.execute("BEGIN")
        self._waiting = list[tuple[Any, ...]]()
        self._left_out = dict[str, list[str]]()
        self._read = 0

    def add(self, attempt: Attempt, place: str, sha: bytes) -> None:
        """Add an attempt; of several at a question with the same hash, the first is kept.

        Raises:
            AttemptError: The attempt has neither an answer nor a conversation.
        """
        sample, said = attempt.sample, [*attempt.messages]
        if not said and not attempt.response.strip():
            raise AttemptError("no response")
        if said and said[-1] == {"role": "assistant", "content": attempt.response}:
            said.pop()  # stored as the response
        asked: Message = {"role": "user", "content": sample.question}
        before = json.dumps(said or [asked], ensure_ascii=False)
        group = attempt.group
        key = digest(["group", group]) if group is not None else text_sha(folded(sample.question))
        short = (place, key, sha, attempt.reward, attempt.model, *columns_of(sample))
        self._waiting.append((*short, attempt.response, before))
        if len(self._waiting) >= ROWS_IN_MEMORY:
            self._write()

    def skip(self, reason: str, place: str) -> None:
        """Count an attempt that is left out."""
        self._left_out.setdefault(reason, []).append(place)

    def settle(self, *, rewards: bool) -> None:
        """Leave out repeated attempts, and questions whose attempts cannot be compared.

        With `rewards`, attempts with equal rewards cannot be compared.
        """
        self._write()
        self._read = self._count("count(*)") + sum(map(len, self._left_out.values()))
        self._db.execute("CREATE INDEX attempts_key ON attempts (key, sha)")
        repeated = """SELECT position FROM (SELECT position, min(position) OVER
            (PARTITION BY key, sha) AS first FROM attempts) WHERE first < position"""
        self._drop("recorded twice", repeated)
        of = "SELECT position FROM attempts WHERE key IN (SELECT key FROM attempts GROUP BY key"
        self._drop("two answers for one question", f"{of} HAVING {_TWO_ANSWERS})")
        self._drop("the only attempt at its question", f"{of} HAVING {_ALONE})")
        if rewards:
            self._drop(
                "all attempts at the question have the same reward", f"{of} HAVING {_EQUAL})"
            )
        # Take turns between the rewards, so that those that are compared still differ.
        beyond = f"""SELECT position FROM (SELECT position, row_number() OVER (PARTITION BY key
              ORDER BY turn, position) AS nth FROM (SELECT position, key, row_number() OVER
                (PARTITION BY key, reward ORDER BY position) AS turn FROM attempts))
            WHERE nth > {MOST}"""
        self._drop(f"more than {MOST} attempts at the question", beyond)
        # The first attempt that has an answer represents its question.
        self._db.execute(
            """CREATE TABLE questions AS SELECT position, key, sha256 FROM
                 (SELECT position, key, sha256, min(position) OVER (PARTITION BY key) AS first,
                   row_number() OVER (PARTITION BY key ORDER BY answer IS NULL, position) AS nth
                   FROM attempts) WHERE nth = 1 ORDER BY first"""
        )
        self._db.execute("CREATE INDEX questions_sha ON questions (sha256)")

    def _drop(self, reason: str, positions: str) -> None:
        gone = f"IN ({positions})"
        for (place,) in self._db.execute(f"SELECT place FROM attempts WHERE position {gone}"):
            self.skip(reason, place)
        self._db.execute(f"DELETE FROM attempts WHERE position {gone}")

    def samples(self) -> Iterator[Sample]:
        """Yield each question once, in the order of their first attempts."""
        found = self._db.execute(
            f"SELECT a.{', a.'.join(COLUMNS)} FROM questions q JOIN attempts a USING (position)"
            " ORDER BY q.rowid"
        )
        for row in found:
            yield sample_of(dict(zip(COLUMNS, row, strict=True)))

    def counts(self) -> Sequence[tuple[int, int]]:
        """Return each question's number of attempts, and how many of them have no reward."""
        counted = """SELECT count(*), count(*) - count(reward) FROM questions q
            JOIN attempts USING (key) GROUP BY key ORDER BY q.rowid"""
        return self._db.execute(counted).fetchall()

    def attempts_at(self, sample_sha: str) -> list[Recorded]:
        """Return the attempts at a question, in the order in which they were recorded."""
        rows = self._db.execute(
            """SELECT response, messages, reward FROM attempts WHERE key =
                 (SELECT key FROM questions WHERE sha256 = ?) ORDER BY position""",
            (bytes.fromhex(sample_sha),),
        )
        return [Recorded(response, before, reward) for response, before, reward in rows]

    @property
    def sha(self) -> str:
        """Hash of all attempts that are used, in hex."""
        rows = self._db.execute("SELECT sha FROM attempts ORDER BY position")
        return list_digest(sha.hex() for (sha,) in rows).hex()

    def notices(self, name: str) -> list[str]:
        """Return sentences that count the used attempts, and count and name the others."""
        kept, questions = self._count("count(*)"), self._count("count(DISTINCT key)")
        models = self._db.execute(
            "SELECT model, count(*) FROM attempts WHERE model <> '' GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall()
        of = "".join(f", {n} of {brief(model, 40)}" for model, n in models[:NAMED])
        unscored = self._count("count(*) - count(reward)")
        to_score = f"; {unscored} have no reward and are scored" if unscored else ""
        told = [
            f"{name}: {kept} of {count(self._read, 'recorded attempt')}"
            f" at {count(questions, 'question')} are used{of}{to_score}"
        ]
        for reason, places in self._left_out.items():
            named = ", ".join(places[:NAMED])
            more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
            told.append(f"{name}: {len(places)} left out: {reason} ({named}{more})")
        return told

    def _count(self, what: str) -> int:
        return int(self._db.execute(f"SELECT {what} FROM attempts").fetchone()[0])

    def _write(self) -> None:
        names = ("place", "key", "sha", "reward", "model", *COLUMNS, "response", "messages")
        marks = ", ".join("?" * len(names))
        self._db.executemany(
            f"INSERT INTO attempts ({', '.join(names)}) VALUES ({marks})", self._waiting
        )
        self._waiting.clear()


def stage_lines(staged: StagedAttempts, path: Path) -> None:
    """Add the attempts of a file with one JSON object per line; count the lines left out.

    Raises:
        DataError: The file cannot be read as text.
    """
    for number, line in enumerate(lines(path), 1):
        place = f"line {number}"
        if not line.strip():
            continue
        try:
            if len(line) > MAX_CHARS:
                raise AttemptError(f"longer than {MAX_CHARS:,} characters")
            fields, sha = _fields(line)
            staged.add(_attempt(fields), place, sha)
        except AttemptError as e:
            staged.skip(str(e), place)


def _fields(line: str) -> tuple[dict[str, Any], bytes]:
    """Return the object in a line, and its hash."""
    try:
        fields = clean_json(json.loads(redactor.text(line)))
        sha = digest(fields)  # refuses NaN
    except (ValueError, RecursionError) as e:
        raise AttemptError("not JSON") from e
    if not isinstance(fields, dict):
        raise AttemptError("not a JSON object")
    return fields, sha


def _attempt(fields: dict[str, Any]) -> Attempt:
    messages, reward = fields.get("messages") or [], fields.get("reward")
    if not isinstance(messages, list) or not all(_is_message(m) for m in messages):
        raise AttemptError("messages are not a list of objects with a role")
    question, response = fields.get("question"), fields.get("response")
    if question is None:
        question = question_in(messages)
    if not isinstance(question, str) or not question.strip():
        raise AttemptError("no question")
    if response is None and messages and messages[-1]["role"] == "assistant":
        response = "\n".join(content_texts(messages[-1].get("content")))
    if not isinstance(response or "", str):
        raise AttemptError("the response is not a text")
    if reward is not None and not (isinstance(reward, int | float) and 0 <= reward <= 1):
        raise AttemptError("the reward is not a number from 0 to 1")
    answer, model = fields.get("answer"), str(fields.get("model") or "")
    group = None if fields.get("group") is None else str(fields["group"])
    given = answer if isinstance(answer, list) else [answer]
    if not all(isinstance(one, str | int | float | None) for one in given):
        raise AttemptError("the answer is not a text, a number or a list of these")
    # Two groups with equal texts are two samples.
    sample = Sample(question, answer, meta={} if group is None else {"group": group})
    reward = None if reward is None else float(reward)
    return Attempt(sample, response or "", messages, reward, model, group)


def question_in(messages: Sequence[Message]) -> str | None:
    """Return the text of the first user message that has one."""
    users = (m for m in messages if m.get("role") == "user")
    texts = ("\n".join(content_texts(m.get("content"))) for m in users)
    return next((text for text in texts if text.strip()), None)


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str)
