"""Labels that people give a run: the name of its arm, tags and a note."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import clean
from grpo_practice.core.text import brief
from grpo_practice.store.reading import deleted_meanwhile

TAG_CHARS, MOST_TAGS, NOTE_CHARS = 40, 20, 2_000


@dataclass(frozen=True, slots=True)
class ArmName:
    """The agent or library that an evaluation measures, as a person typed or would type it."""

    typed: str
    """`none`, `full`, `pa.yaml`, or `L6 "E3 edited"` for a library that a person edited."""
    change: str | None = None
    """Difference from the arm before it, "" for the first; None for a single evaluation."""


@dataclass(frozen=True, slots=True)
class RunLabels:
    """Labels that people gave a run."""

    arm: str | None
    """See `ArmName.typed`; None if unknown."""
    arm_change: str | None
    """How the run differs from the arm before it; None if there was no arm before."""
    tags: Sequence[str]
    note: str


def name_arm(db: sqlite3.Connection, run: str, name: ArmName) -> None:
    """Store the name of an arm; a single evaluation keeps the name that a comparison gave it."""
    db.execute(
        """UPDATE runs SET arm = :arm, arm_change = nullif(:change, '')
            WHERE run_id = :run AND (:change IS NOT NULL OR arm IS NULL)""",
        {
            "run": run,
            "arm": name.typed[:NOTE_CHARS],
            "change": None if name.change is None else name.change[:NOTE_CHARS],
        },
    )


def check_labels(labels: RunLabels) -> None:
    """Raise ConfigError if `label` would not have stored these tags, or would have cut a text."""
    tags = [*map(_tag, labels.tags)]
    if tags != list(labels.tags) or len({*tags}) < len(tags) or len(tags) > MOST_TAGS:
        raise ConfigError(f"a run has at most {MOST_TAGS} tags, each once")
    if _note(labels.note) != labels.note:
        raise ConfigError("a note has no control characters")
    if max(map(len, (labels.arm or "", labels.arm_change or ""))) > NOTE_CHARS:
        raise ConfigError(f"the name of an arm has at most {NOTE_CHARS:,} characters")


def label(
    db: sqlite3.Connection, run: str, add: Sequence[str], remove: Sequence[str], note: str | None
) -> None:
    """Add and remove tags of the run, and replace its note, unless it is None.

    Raises:
        ConfigError: The run has been deleted, has too many tags or lacks one to remove, or a text
            is not allowed.
    """
    row = db.execute("SELECT tags, note FROM runs WHERE run_id = ?", (run,)).fetchone()
    if row is None:
        raise deleted_meanwhile()
    had: list[str] = row["tags"].split()
    for one in remove:
        if one not in had:
            hint = f"its tags: {' '.join(had) or 'none'}"
            raise ConfigError(f"{run} has no tag {one!r}", hint=hint)
    tags = [*dict.fromkeys([one for one in had if one not in remove] + [*map(_tag, add)])]
    if len(tags) > MOST_TAGS:
        raise ConfigError(f"{run} would have {len(tags)} tags; a run may have {MOST_TAGS}")
    db.execute(
        "UPDATE runs SET tags = ?, note = ? WHERE run_id = ?",
        (" ".join(tags), row["note"] if note is None else _note(note), run),
    )


def _tag(text: str) -> str:
    word = clean(text).strip()
    fine = word.isprintable() and not any(c.isspace() or c == "," for c in word)
    if not (fine and any(map(str.isalnum, word)) and len(word) <= TAG_CHARS):
        raise ConfigError(
            f"a tag is one word of at most {TAG_CHARS} characters, not {brief(text, TAG_CHARS)!r}",
            hint="`runs note` stores sentences",
        )
    return word


def _note(text: str) -> str:
    """Return the note without control characters, except line breaks."""
    lines = clean(text).replace("\r\n", "\n").split("\n")
    # C0 and C1; all outputs show other invisible characters as escapes.
    shown = ("".join(" " if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in s) for s in lines)
    note = "\n".join(map(str.rstrip, shown)).strip()
    if len(note) > NOTE_CHARS:
        raise ConfigError(f"the note has {len(note):,} characters; {NOTE_CHARS:,} are allowed")
    return note
