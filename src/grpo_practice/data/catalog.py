"""The catalogue of published datasets: where to find each one, and how to convert its rows.

Rows are in the order that the published runs used: a shuffle with seed 42, or the file's order.
"""

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from grpo_practice.core.errors import DataError
from grpo_practice.core.text import nearest
from grpo_practice.data.hub import Ref
from grpo_practice.data.text_lines import Row

SEED = 42
"""Seed of the published order."""

Convert = Callable[[Mapping[str, Any], int], dict[str, Any]]
"""Function that converts a row's fields, given the row's number (counted from 1)."""
Rows = Iterable[Row | DataError]
Prepared = tuple[list[Row | DataError], list[str]]
"""Rows with `question`, `answer` and optionally `level` and `meta`, plus notes on the changes
made.
"""

WRAPPER = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n",
    '\n\nRemember to put your answer on its own line after "Answer:".',
)
"""Text that DAPO-Math-17k puts before and after each problem."""

TURNS = ("easy",) * 4 + ("medium",) * 7 + ("hard",) * 6
"""Difficulties of each block of 17 consecutive questions of WebWalkerQA."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One dataset of the catalogue."""

    ref: Ref
    prepare: Callable[[Rows, Random], Prepared]
    verify: str
    """Name of the verify function that suits its answers."""
    columns: tuple[str, ...] | None = None
    """Columns to read from parquet files; None means all."""


def plain(rows: Rows, rng: Random) -> Prepared:
    """Take problem and answer from each row, in the file's order."""
    return [_convert(row, 0, _problem) for row in rows], []


def dapo(rows: Rows, rng: Random) -> Prepared:
    """Keep each problem once, without its wrapper text, and shuffle the problems.

    The published file repeats every problem about a hundred times. The last answer to a problem is
    kept; the order before the shuffle is that of first appearance.
    """
    bad: list[Row | DataError] = []
    last: dict[str, Row] = {}
    read = bare = changed = 0
    for row in _published_rows(rows, _wrapped, bad):
        read += 1
        unwrapped, question = row.fields.pop("unwrapped"), row.fields["question"]
        if question in last:
            changed += last[question].fields["answer"] != row.fields["answer"]
        else:
            bare += not unwrapped
        last[question] = row  # a dict keeps the place of the first appearance
    found = list(last.values())
    rng.shuffle(found)
    notes = [f"{read - len(found)} of {read} rows repeat a problem: each problem is kept once"]
    if changed:
        notes.append(f"{changed} of them give a different answer: the last answer is kept")
    if bare:
        notes.append(f"{bare} problems lack the usual wrapper text and are kept unchanged")
    return [*bad, *found], notes


def afm(rows: Rows, rng: Random) -> Prepared:
    """Keep the questions that have exactly one answer, and shuffle them."""
    bad: list[Row | DataError] = []
    read = list(_published_rows(rows, _single, bad))
    found = [row for row in read if row.fields]
    rng.shuffle(found)
    others, total = len(read) - len(found), len(read) + len(bad)
    notes = [f"{others} of {total} rows left out: they do not have exactly one answer"]
    return [*bad, *found], notes if others else []


def webwalker(rows: Rows, rng: Random) -> Prepared:
    """Shuffle each difficulty, then deal four easy, seven medium, six hard questions in turn."""
    bad: list[Row | DataError] = []
    piles: dict[str, list[Row]] = {level: [] for level in dict.fromkeys(TURNS)}
    for row in _published_rows(rows, _walk, bad):
        piles[row.fields["level"]].append(row)
    counts = ", ".join(f"{len(pile)} {level}" for level, pile in piles.items())
    for pile in piles.values():
        rng.shuffle(pile)
    found: list[Row] = []
    while any(piles.values()):
        found += [piles[level].pop() for level in TURNS if piles[level]]
    return [*bad, *found], [f"{counts}: four easy, seven medium, six hard in turn while they last"]


CATALOG: Mapping[str, Entry] = {
    "AIME24": Entry(Ref("HuggingFaceH4/aime_2024", split="train"), plain, "math"),
    "AIME25": Entry(Ref("yentinglin/aime_2025", split="train"), plain, "math"),
    "DAPO-Math-17k": Entry(
        Ref("BytedTsinghua-SIA/DAPO-Math-17k", split="train"),
        dapo,
        "math",
        ("prompt", "reward_model"),
    ),
    "AFM_web_RL": Entry(
        Ref("PersonalAILab/AFM-WebAgent-RL-Dataset", split="train"), afm, "judge", ("extra_info",)
    ),
    "WebWalkerQA": Entry(Ref("callanwu/WebWalkerQA", split="main"), webwalker, "judge"),
}


def published(name: str) -> str | None:
    """Find a dataset of the catalogue by name, ignoring case."""
    return next((known for known in CATALOG if known.casefold() == name.casefold()), None)


def way_to(name: str, known: Collection[str] = ()) -> str:
    """Suggest the command that creates a dataset with an unknown name, or a similar known name."""
    # Check this first, because `AIME24` and `AIME25` differ by as little as a typo.
    if hub := published(name):
        return f"grpo-practice data download {hub}" + ("" if hub == name else f" --name {name}")
    whole, _, part = name.rpartition("-")
    parts = _PARTS.get(part)
    split = f"grpo-practice data split {shlex.quote(whole)} --into {parts}"
    if whole in known and parts:
        # Existing parts are split again together with this one; earlier runs keep their samples.
        there = any(f"{whole}-{word}" in known for word in _PARTS)
        return f"{split} --replace" if there else split
    if near := nearest(name, known):
        return near
    for file in _files_here():
        # Only a file whose name matches can contain this dataset or the one to split it from.
        if Path(file).stem == name:
            return _upload(file, name)
        if Path(file).stem == whole and whole not in known:
            return f"{_upload(file, whole)}{f', then {split}' if parts else ''}"
    return "grpo-practice data list" if known else "grpo-practice data upload --help"


def first_dataset() -> str:
    """Suggest a command that creates a first dataset, from a local file or from the examples."""
    for file in _files_here():
        return _upload(file, re.sub(r"[^\w.-]+", "-", Path(file).stem).strip("-.") or "mine")
    return "grpo-practice init my-task"


def _upload(file: str, name: str) -> str:
    return f"grpo-practice data upload {shlex.quote(file)} --name {shlex.quote(name)}"


def _files_here() -> list[str]:
    """List the files in the current folder that look like rows of a dataset."""
    with suppress(OSError):
        files = sorted(path.name for path in Path().iterdir() if path.suffix in _ROWS)
        return [name for name in files if not name.startswith(".")]
    return []


_HALVES = "train=0.5,test=0.5"
_PARTS = {
    "train": _HALVES,
    "test": _HALVES,
    "select": "train=0.4,select=0.2,test=0.4",
    "dev": "train=0.4,dev=0.2,test=0.4",
    "valid": "train=0.4,valid=0.2,test=0.4",
}
"""Common last word of a dataset's name → parts to split the whole dataset into."""
_ROWS = {".jsonl", ".csv", ".tsv", ".parquet"}
"""Suffixes of files that most likely contain rows of a dataset."""


def _published_rows(rows: Rows, convert: Convert, bad: list[Row | DataError]) -> Iterator[Row]:
    """Yield the converted rows; append rows that differ from the published format to `bad`."""
    for number, row in enumerate(rows, 1):
        made = _convert(row, number, convert)
        if isinstance(made, Row):
            yield made
        else:
            bad.append(made)


def _convert(row: Row | DataError, number: int, convert: Convert) -> Row | DataError:
    if isinstance(row, DataError):
        return row
    # One changed row must not stop the download, so it is reported like any other bad row.
    try:
        return Row(row.place, convert(row.fields, number))
    except _NotAsPublishedError as e:
        return DataError(
            f"{row.place}: {e}",
            hint="the dataset may have changed; --revision selects an earlier version",
        )


class _NotAsPublishedError(ValueError):
    """A row lacks the columns of the published dataset."""


def _problem(fields: Mapping[str, Any], _: int) -> dict[str, Any]:
    meta = {key: fields[key] for key in ("id", "url", "year") if fields.get(key) is not None}
    question = _either(fields, "problem", "question", "Question", "prompt")
    return {"question": question, "answer": _either(fields, "answer", "Answer"), "meta": meta}


def _wrapped(fields: Mapping[str, Any], _: int) -> dict[str, Any]:
    match _either(fields, "prompt"):
        case str(prompt) | [{"content": str(prompt)}, *_]:
            pass
        case _:
            raise _NotAsPublishedError("'prompt' is neither a text nor a message")
    question = prompt.removeprefix(WRAPPER[0]).removesuffix(WRAPPER[1])
    answer = _either(_object(fields.get("reward_model")), "ground_truth")
    return {"question": question, "answer": answer, "unwrapped": question != prompt}


def _single(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Convert a row; return an empty dict unless the question has exactly one answer."""
    extra = _object(fields.get("extra_info"))
    match _either(extra, "answer"):
        case [answer]:
            pass
        case list():
            return {}
        case answer:
            pass
    return {"question": _either(extra, "question"), "answer": answer, "meta": {"id": number}}


def _walk(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    info = _object(fields.get("info"))
    level = info.get("difficulty_level")
    if level not in TURNS:
        problem = f"'info.difficulty_level' is {level!r}, not easy, medium or hard"
        raise _NotAsPublishedError(problem)
    about = {key: value for key, value in info.items() if key != "difficulty_level"}
    return {
        "question": _either(fields, "question", "Question"),
        "answer": _either(fields, "answer", "Answer"),
        "level": level,
        "meta": {"id": number, "root_url": fields.get("root_url"), **about},
    }


def _either(fields: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if fields.get(name) is not None:
            return fields[name]
    has = ", ".join(map(repr, list(fields)[:20]))
    raise _NotAsPublishedError(f"no {names[0]!r}; the row has {has}")


def _object(value: object) -> Mapping[str, Any]:
    """Return an object, whether given directly or as JSON text; return {} for any other value."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
