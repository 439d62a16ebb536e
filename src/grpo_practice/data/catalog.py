"""The published datasets by name: where each is, and how its rows become questions and answers.

Orders are those of the published runs: a shuffle with the seed 42 where there was one.
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

from grpo_practice.data.hub import Ref
from grpo_practice.data.text_lines import Row
from grpo_practice.errors import DataError
from grpo_practice.text import nearest

SEED = 42
"""Seed of the published order."""

Convert = Callable[[Mapping[str, Any], int], dict[str, Any]]
"""Conversion of a row's fields, given its number from 1."""
Rows = Iterable[Row | DataError]
Prepared = tuple[list[Row | DataError], list[str]]
"""Rows with `question`, `answer` and perhaps `level` and `meta`; sentences on what was done."""

WRAPPER = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n",
    '\n\nRemember to put your answer on its own line after "Answer:".',
)
"""Texts before and after each problem of DAPO-Math-17k."""

TURNS = ("easy",) * 4 + ("medium",) * 7 + ("hard",) * 6
"""The difficulties of each 17 questions of WebWalkerQA in a row."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One dataset of the catalogue."""

    ref: Ref
    prepare: Callable[[Rows, Random], Prepared]
    verify: str
    """The verify function its answers are for."""
    columns: tuple[str, ...] | None = None
    """Columns to read of parquet files; None means all."""


def plain(rows: Rows, rng: Random) -> Prepared:
    """Take problem and answer, in the file's order."""
    return [_convert(row, 0, _problem) for row in rows], []


def dapo(rows: Rows, rng: Random) -> Prepared:
    """Keep each problem once, unwrapped: the last answer, in the order of the first; shuffled.

    The published file holds every problem about a hundred times.
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
        last[question] = row
    found = list(last.values())
    rng.shuffle(found)
    notes = [f"{read - len(found)} of {read} rows repeat a problem: each is kept once"]
    if changed:
        notes.append(f"{changed} of them change its answer: the last one is kept")
    if bare:
        notes.append(f"{bare} problems stand without the usual wrapper, and are kept as they are")
    return [*bad, *found], notes


def afm(rows: Rows, rng: Random) -> Prepared:
    """Keep questions with exactly one answer, shuffled."""
    bad: list[Row | DataError] = []
    read = list(_published_rows(rows, _single, bad))
    found = [row for row in read if row.fields]
    rng.shuffle(found)
    others, total = len(read) - len(found), len(read) + len(bad)
    notes = [f"{others} of {total} rows left out: they have not exactly one answer"]
    return [*bad, *found], notes if others else []


def webwalker(rows: Rows, rng: Random) -> Prepared:
    """Shuffle each difficulty and deal out four easy, seven medium, six hard, and again."""
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
    return [*bad, *found], [f"{counts}: four easy, seven medium, six hard in turn, as they last"]


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
    """Return the name of the catalogue's dataset, in whatever case it is typed."""
    return next((known for known in CATALOG if known.casefold() == name.casefold()), None)


def way_to(name: str, known: Collection[str] = ()) -> str:
    """Return the command that makes a dataset of a name that is not `known`, or a near name."""
    if hub := published(name):  # its other year is as near as a slip of the finger
        return f"grpo-practice data download {hub}" + ("" if hub == name else f" --name {name}")
    whole, _, part = name.rpartition("-")
    parts = _PARTS.get(part)
    split = f"grpo-practice data split {shlex.quote(whole)} --into {parts}"
    if whole in known and parts:
        # Other parts that it has are divided anew with this one; old runs keep what they used.
        there = any(f"{whole}-{word}" in known for word in _PARTS)
        return f"{split} --replace" if there else split
    if near := nearest(name, known):
        return near
    for file in _files_here():
        # Its rows may be this dataset, or are divided into it; those of another file are not it.
        if Path(file).stem == name:
            return _upload(file, name)
        if Path(file).stem == whole and whole not in known:
            return f"{_upload(file, whole)}{f', then {split}' if parts else ''}"
    return "grpo-practice data list" if known else "grpo-practice data upload --help"


def first_dataset() -> str:
    """Return the command that makes a first dataset: of a file that lies here, or of examples."""
    for file in _files_here():
        return _upload(file, re.sub(r"[^\w.-]+", "-", Path(file).stem).strip("-.") or "mine")
    return "grpo-practice init my-task"


def _upload(file: str, name: str) -> str:
    return f"grpo-practice data upload {shlex.quote(file)} --name {shlex.quote(name)}"


def _files_here() -> list[str]:
    """Return the names of the files of rows in the current folder."""
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
"""Usual last word of a dataset's name → parts to divide the whole into."""
_ROWS = {".jsonl", ".csv", ".tsv", ".parquet"}
"""Endings of files that are most likely rows of a dataset."""


def _published_rows(rows: Rows, convert: Convert, bad: list[Row | DataError]) -> Iterator[Row]:
    """Yield the rows that are as published, converted; collect the others in `bad`."""
    for number, row in enumerate(rows, 1):
        made = _convert(row, number, convert)
        if isinstance(made, Row):
            yield made
        else:
            bad.append(made)


def _convert(row: Row | DataError, number: int, convert: Convert) -> Row | DataError:
    if isinstance(row, DataError):
        return row
    try:
        return Row(row.place, convert(row.fields, number))
    except _NotAsPublishedError as e:
        return DataError(f"{row.place}: {e}", hint="has the dataset changed? see --revision")


class _NotAsPublishedError(ValueError):
    """A row has not the columns that the published dataset has."""


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
    """Return the row; empty where the question has not exactly one answer."""
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
        raise _NotAsPublishedError(f"'info.difficulty_level' is {level!r}: not easy, medium, hard")
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
    """Return an object, or the one that a text holds; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
