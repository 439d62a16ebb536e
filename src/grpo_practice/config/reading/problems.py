"""All problems of a config in one message: file, line, key, value and the remedy."""

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from grpo_practice.config.reading.yaml_reader import Key, Tree
from grpo_practice.config.redact import redact
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import brief, nearest

SHOWN = 20
"""Maximum number of problems in one message."""
KEY = 100
"""Maximum number of characters shown from a key."""
_ABSENT = object()
_BOOLS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A key that cannot be used as it is."""

    key: Key
    text: str
    hint: str | None = None
    private: bool = False
    """Whether the key's value must be hidden."""


def raise_problems(problems: Sequence[Problem], tree: Tree, name: str) -> None:
    """Raise one ConfigError with a line for each problem; return if there are no problems."""
    if not problems:
        return
    # Several checks may report the same problem.
    different = list(dict.fromkeys(problems))
    if len(different) == 1:
        raise ConfigError(_line(different[0], tree), hint=different[0].hint)
    lines = [f"  {_line(p, tree)}{f' ({p.hint})' if p.hint else ''}" for p in different[:SHOWN]]
    if len(different) > SHOWN:
        lines.append(f"  and {len(different) - SHOWN:,} more")
    raise ConfigError(f"{len(different):,} problems in {name}:\n" + "\n".join(lines))


def _line(problem: Problem, tree: Tree) -> str:
    place = tree.place(problem.key)
    if not problem.key:
        return f"{place.file}: {problem.text}" if place else problem.text
    where = f"{place.shown}: " if place else ""
    key = brief(dotted((*tree.prefix, *problem.key)), KEY)
    value = value_at(tree.data, problem.key)
    shown = "" if problem.private or value is _ABSENT else f" = {_shown(value, problem.key)}"
    return f"{where}{key}{shown}: {problem.text}"


def dotted(key: Key) -> str:
    """Join the parts of a key: `practice.epochs`."""
    return ".".join(str(part) for part in key)


def section_at(data: Any, key: Key) -> dict[str, Any]:
    """Return the mapping at a key, or an empty mapping."""
    for part in key:
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def value_at(data: Any, key: Key) -> Any:
    """Return the value at a key, or the sentinel `_ABSENT`."""
    for part in key:
        known = (
            data if isinstance(data, dict) else range(len(data) if isinstance(data, list) else 0)
        )
        if part not in known:
            return _ABSENT
        data = data[part]
    return data


def _shown(value: Any, key: Key) -> str:
    """Return the value as short text, with control characters escaped and secrets hidden."""
    value = redactor.value(redact(value, key))
    text = ascii(value) if not str(value).isprintable() else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def problems_of(error: ValidationError, model: type[BaseModel], data: Any) -> Iterable[Problem]:
    """Convert pydantic's errors to problems in our own words."""
    for n, found in enumerate(error.errors(include_url=False, include_context=False)):
        key = _key(found["loc"], data, found["type"])
        if found["type"] == "extra_forbidden":
            near = _unknown(str(key[-1]), key, model) if n < SHOWN else None  # each call is slow
            yield Problem(key, "unknown key", near)
        elif found["type"] == "missing":
            yield Problem(key, "is missing", f"add {dotted(key)} to the config")
        elif found["type"] in ("model_type", "dict_type"):
            hint = "give an agent file with --agent FILE" if key[-1:] == ("agent",) else None
            yield Problem(key, "should be a section with keys", hint)
        else:
            yield Problem(key, *_wrong(found["type"], found["msg"], found["input"]))


def _unknown(name: str, key: Key, root: type[BaseModel]) -> str | None:
    """Suggest the key that an unknown key was meant to be."""
    here = _fields(root, key[:-1])
    elsewhere = [k for k in keys_of(root) if k.rpartition(".")[2] == name]
    # Prefer an exact match deeper in this section to a similar key on the same level.
    section = "".join(f"{part}." for part in key[:-1])
    if below := next((k for k in elsewhere if k.startswith(section)), None):
        return f"did you mean {below}?"
    if len(elsewhere) == 1 or (elsewhere and not difflib.get_close_matches(name, here)):
        return f"did you mean {elsewhere[0]}?"
    return did_you_mean(name, here)


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all scalar fields in a model and its nested models."""
    for name, field in model.model_fields.items():
        inner = model_in(field.annotation)
        if inner is None:
            yield f"{prefix}{name}"
        else:
            yield from keys_of(inner, f"{prefix}{name}.")


def _key(loc: Iterable[str | int], data: Any, kind: str) -> Key:
    """Return the error's key in the data, without the union branches that pydantic adds."""
    key: Key = ()
    for part in loc:
        if value_at(data, (*key, part)) is not _ABSENT:
            key = (*key, part)
        elif kind == "missing":
            return (*key, part)
    return key


def _wrong(kind: str, message: str, value: object) -> tuple[str, str | None]:
    if kind == "value_error":
        return message.removeprefix("Value error, "), None
    text = message.replace("Input should", "should").replace("String should", "should")
    if kind == "string_pattern_mismatch":
        text = (
            "may contain only letters, digits, `.`, `_` and `-`"
            " (1 to 100, not starting with . or -)"
        )
    return text, coercion_hint(kind, value)


def coercion_hint(kind: str, value: object) -> str | None:
    """Return a hint on how to write a value that has the wrong type; None if that is not clear."""
    if kind.startswith("string") and isinstance(value, bool | int | float):
        return "put it in quotes"
    if kind.startswith(("int", "float")) and isinstance(value, bool):
        return "write a number"
    if kind.startswith("int") and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if not isinstance(value, str):
        return None
    if kind.startswith("bool"):
        return (
            f"write {_BOOLS[value.lower()]}" if value.lower() in _BOOLS else "write true or false"
        )
    if kind.startswith(("int", "float")):
        number = number_in(value)
        return "write a plain decimal number" if number is None else f"write {number}"
    return None


def number_in(text: str) -> int | float | None:
    """Return the number that a text such as `7e-1` means, although YAML reads it as a text."""
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Suggest the nearest known names, or list all of them if there are only a few."""
    known = sorted(set(known))
    everything = f"known: {', '.join(known)}" if known else None
    return nearest(name, known) or everything


def _fields(model: type[BaseModel], key: Key) -> list[str]:
    """Return the field names of the model at a key."""
    for part in key:
        field = model.model_fields.get(str(part))
        inner = field and model_in(field.annotation)
        if not inner:
            return []
        model = inner
    return [name for name in model.model_fields if name not in WORKED_OUT]


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the config model of a field; None for other types and for mappings of models."""
    if get_origin(annotation) is dict:
        return None
    for kind in get_args(annotation) or (annotation,):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None
