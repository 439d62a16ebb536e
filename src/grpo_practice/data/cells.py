"""JSON values in text, and table cells that contain a list or an object as text."""

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from grpo_practice.core.hashing import clean_json

LONGEST = 1 << 16
"""Maximum number of characters to parse as a Python literal; lists of options are shorter."""
_NO_ESCAPE = re.compile(r"\\[^\\'\"nrtxuU]")
"""A backslash escape that Python's `repr` never writes, such as LaTeX in a hand-written list."""
_STRING = re.compile(r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(\s*['"])?""", re.DOTALL)
"""A string literal, and the opening quote of the next one if no comma separates the two."""


def value_in(text: str, place: int) -> tuple[Any, int]:
    """Parse the JSON value at `place`; return it and its end position, or raise JSONDecodeError."""
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError:
        raise
    # Deep nesting and huge numbers raise other errors; callers handle only JSONDecodeError.
    except RecursionError as e:
        raise json.JSONDecodeError("nested too deeply", text, place) from e
    except ValueError as e:
        raise json.JSONDecodeError(str(e), text, place) from e


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        what = "too large a number" if text[-1].isdigit() else "not a JSON number"
        raise ValueError(f"{text} is {what}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    # Python would silently keep the last of two equal keys and so drop part of a row.
    if len(fields) < len(pairs):
        name = first_repeated([name for name, _ in pairs])
        raise ValueError(f"the key {name!r} appears twice in one object")
    return fields


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that appears more than once, or None."""
    counts = Counter(names)  # names.count() for each name takes minutes for a million columns
    return next((name for name in names if counts[name] > 1), None)


_DECODER = json.JSONDecoder(parse_constant=_number, parse_float=_number, object_pairs_hook=_object)


def unpacked(value: object) -> object:
    """Parse text that contains a JSON list or object; return any other value unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    text = value.strip()
    try:
        found, end = value_in(text, 0)
    except json.JSONDecodeError:
        return value
    return clean_json(found) if end == len(text) else value


def from_cell(value: object) -> Any:
    """Parse text that contains a list or object in JSON or Python syntax.

    Return any other value unchanged.
    """
    found = unpacked(value)
    if not isinstance(found, str) or not found.lstrip().startswith(("[", "{")):
        return found
    if len(found) > LONGEST or _NO_ESCAPE.search(found.replace("\\\\", "")):
        return value
    # NumPy prints ['a' 'b'], which Python would parse as one string and so merge the options.
    if any(string[1] for string in _STRING.finditer(found)):
        return value
    # literal_eval runs no code, but large input could exhaust memory: hence the limit above.
    try:
        return clean_json(ast.literal_eval(found.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value
