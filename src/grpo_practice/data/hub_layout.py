"""Find the splits and configs of a dataset's repository, and the files of each.

The `configs:` block of the README takes precedence; otherwise names of files and folders decide.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpo_practice.core.errors import DataError
from grpo_practice.data.hub import Ref

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
"""Supported suffixes, best first; files that differ only in suffix contain the same rows."""
PACKED = ".gz"
NO_ROWS = frozenset({"config.json", "dataset_info.json", "dataset_infos.json", "state.json"})
SHOWN = 12
MAX_STARS = 6  # a regex with many wildcards may backtrack practically forever
MAX_CONFIGS = 1 << 18
"""Maximum number of characters in the `configs:` block of a README."""

Splits = Mapping[str, Sequence[str]]
"""Files of each split, in order."""

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_WORD = {word: split for split, words in _WORDS.items() for word in words}
_SHARD = re.compile(r"(\w+)-\d+-of-\d+")
_CUT = re.compile(r"[-._ ]|(?<=\D)(?=\d)")


def files_of(ref: Ref, files: Iterable[str], readme: str) -> tuple[str, list[str]]:
    """Return `split` or `config/split`, and the files of that split in order.

    Raises:
        DataError: No file matches, or the choice is ambiguous; the message lists the choices.
    """
    # Sorted, so that the shards of a split are read in their order.
    names = sorted(files)
    if ref.split in names and _has_rows(ref.split):
        return ref.split, [ref.split]
    rows = [name for name in names if _has_rows(name)]
    if not rows:
        raise _no_rows(ref, names)
    configs = _declared(readme, rows) or _usual(rows)
    config, splits = _pick(ref, "config", ref.config, configs)
    split, found = _pick(ref, "split", ref.split, splits)
    chosen = _one_suffix(ref, found)
    counts = {m[1] for name in chosen if (m := re.search(r"-\d+-of-0*(\d+)\b", name))}
    # A missing shard would silently shrink the split.
    if len(counts) == 1 and len(chosen) < int(min(counts)):
        problem = f"has only {len(chosen)} of the {min(counts)} files of that split"
        raise DataError(f"hf://{ref.repo} {problem}")
    return split if config == "default" else f"{config}/{split}", chosen


def _has_rows(name: str) -> bool:
    parts = name.split("/")
    if any(not part or part.startswith((".", "__")) for part in parts):  # hidden, or `..`
        return False
    if parts[-1] in NO_ROWS:
        return False
    return name.lower().removesuffix(PACKED).endswith(SUFFIXES)


def _no_rows(ref: Ref, names: Sequence[str]) -> DataError:
    if any(name.endswith(".py") for name in names):
        return DataError(
            f"hf://{ref.repo} has no data files, only a script that would create them; such "
            "scripts are never run",
            hint="the hub may have converted it: try --revision refs/convert/parquet",
        )
    kinds = ", ".join(SUFFIXES)
    return DataError(f"hf://{ref.repo} has no file in a supported format: {kinds}")


def _pick(ref: Ref, what: str, asked: str | None, choices: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the requested choice; without a request, the only choice or the default config."""
    if asked is None and len(choices) > 1 and "default" in choices and what == "config":
        asked = "default"
    if asked is None and len(choices) == 1:
        asked = next(iter(choices))
    for name in (asked or "", _WORD.get((asked or "").casefold(), "")):
        if name in choices:
            return name, choices[name]
    some = ", ".join(list(choices)[:SHOWN]) + (", …" if len(choices) > SHOWN else "")
    form = f"hf://{ref.repo}:CONFIG@SPLIT" if what == "config" else f"hf://{ref.repo}@SPLIT"
    none = f"has no {what} {asked!r}" if asked else f"has more than one {what}"
    raise DataError(f"hf://{ref.repo} {none}; it has {some}", hint=f"say which: {form}")


def _one_suffix(ref: Ref, names: Sequence[str]) -> list[str]:
    """Keep the files with the best suffix if the others are copies in other formats."""
    by_suffix: dict[str, dict[str, str]] = {}
    for name in names:
        plain = name.lower().removesuffix(PACKED)
        suffix = next(suffix for suffix in SUFFIXES if plain.endswith(suffix))
        by_suffix.setdefault(suffix, {})[plain.removesuffix(suffix)] = name
    best = min(by_suffix, key=SUFFIXES.index)
    if all(stems.keys() <= by_suffix[best].keys() for stems in by_suffix.values()):
        return list(by_suffix[best].values())
    some = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    hint = f"say which file: hf://{ref.repo}@{names[0]}"
    raise DataError(f"hf://{ref.repo} has files in several formats: {some}", hint=hint)


def _declared(readme: str, rows: Sequence[str]) -> dict[str, Splits]:
    """Return the configs that the README declares, except configs that match no file."""
    found: dict[str, Splits] = {}
    for config in _head(readme):
        splits: dict[str, Sequence[str]] = {}
        folder = str(config.get("data_dir") or "").strip("/")
        for split, patterns in _patterns(config.get("data_files")):
            inside = [f"{folder}/{p}" if folder else p for p in patterns]
            if files := [name for p in inside for name in rows if _matches(p, name)]:
                splits[split] = list(dict.fromkeys([*splits.get(split, ()), *files]))
        if not splits and folder and "data_files" not in config:
            inside = [name for name in rows if name.startswith(folder + "/")]
            splits = {k: v for each in _usual(inside).values() for k, v in each.items()}
        if splits:
            name = "default" if config.get("default") is True else config.get("config_name")
            found[str(name or "default")] = splits
            found.setdefault(str(config.get("config_name") or "default"), splits)
    return found


def _head(readme: str) -> list[dict[str, Any]]:
    """Parse the `configs:` block of a README's YAML front matter, and ignore everything else."""
    import yaml

    head = re.match(r"\ufeff?---\s*\n(.*?\n)---\s*(?:\n|$)", readme, re.DOTALL)
    block = re.search(r"^configs:.*\n(?:(?:[ -].*)?\n)*", head[1], re.MULTILINE) if head else None
    if block is None or len(block[0]) > MAX_CONFIGS:
        return []
    try:
        configs = yaml.safe_load(block[0])["configs"]
    except (yaml.YAMLError, RecursionError, ValueError):
        return []  # a broken README is not an error: file names may still identify the splits
    return [c for c in configs if isinstance(c, dict)] if isinstance(configs, list) else []


def _patterns(value: object) -> list[tuple[str, list[str]]]:
    """Return (split, patterns) of `data_files:`: a text, a list of texts or pairs, or a mapping."""
    match value:
        case str():
            return [("train", [value])]
        case list() if all(isinstance(v, str) for v in value):
            return [("train", value)]
        case list():
            pairs = [(v.get("split"), v.get("path")) for v in value if isinstance(v, dict)]
            return [(str(split), _texts(path)) for split, path in pairs]
        case dict():
            return [(str(split), _texts(path)) for split, path in value.items()]
        case _:
            return []


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]


def _matches(pattern: str, name: str) -> bool:
    if pattern.count("*") > MAX_STARS:
        return False
    parts = re.split(r"(\*\*/|\*+|\?|\[[^\]/]+\])", pattern.removeprefix("./"))
    return re.fullmatch("".join(map(_part, parts)), name) is not None


def _part(part: str) -> str:
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if part.startswith("[") and part.endswith("]"):
        return "[" + part[1:-1].replace("\\", "").replace("!", "^", 1) + "]"
    return known.get(part) or re.escape(part)


def _usual(rows: Sequence[str]) -> dict[str, Splits]:
    """Infer splits from words in names (`train`, `test-00000-of-00002`), configs from folders."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in rows:
        config, split = _place_of(name)
        found.setdefault(config, {}).setdefault(split, []).append(name)
    for splits in found.values():
        loose = splits.pop("", [])
        if not splits:  # no name contains a split: treat all files as training data
            splits["train"] = loose
    return dict(found)


def _place_of(name: str) -> tuple[str, str]:
    """Return (config, split) of a file; split is '' if no part of the path names one."""
    *folders, file = name.split("/")
    stem = file.partition(".")[0]
    shard = _SHARD.fullmatch(stem)
    words = (_WORD[word] for word in _CUT.split(stem.casefold()) if word in _WORD)
    split = _WORD.get(shard[1], shard[1]) if shard else next(words, "")
    rest = []
    for folder in folders:
        if not split and folder.casefold() in _WORD:
            split = _WORD[folder.casefold()]
        elif folder.casefold() not in ("data", split):
            rest.append(folder)
    return "/".join(rest) or "default", split
