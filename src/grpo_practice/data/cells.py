"""JSON values in text, and lists and objects that the cell of a table holds as text."""

import ast
import json
import math
import re
from typing import Any

from grpo_practice.canonical import clean_json

LONGEST = 1 << 16
"""Characters of a text that is tried as Python's notation; a longer one is no list of options."""
_NO_ESCAPE = re.compile(r"\\[^\\'\"nrtxuU]")
"""A backslash that Python never shows so: LaTeX in a list that somebody wrote by hand."""
_STRING = re.compile(r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(\s*['"])?""", re.DOTALL)
"""A string, and the beginning of another one if no comma stands between them."""


def value_in(text: str, place: int) -> tuple[Any, int]:
    """Parse the JSON value that begins there; return it and its end, or raise JSONDecodeError."""
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError:
        raise
    except RecursionError as e:
        raise json.JSONDecodeError("nested too deeply", text, place) from e
    except ValueError as e:
        raise json.JSONDecodeError(str(e), text, place) from e


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        what = "too large a number" if text[-1].isdigit() else "not a number in JSON"
        raise ValueError(f"{text} is {what}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} twice in one object")
    return fields


_DECODER = json.JSONDecoder(parse_constant=_number, parse_float=_number, object_pairs_hook=_object)


def unpacked(value: object) -> object:
    """Parse the JSON list or object that a text holds; return any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    text = value.strip()
    try:
        found, end = value_in(text, 0)
    except json.JSONDecodeError:
        return value
    return clean_json(found) if end == len(text) else value


def from_cell(value: object) -> Any:
    """Parse the list or object that a text holds, as JSON or Python; return other values as is."""
    found = unpacked(value)
    if not isinstance(found, str) or not found.lstrip().startswith(("[", "{")):
        return found
    if len(found) > LONGEST or _NO_ESCAPE.search(found.replace("\\\\", "")):
        return value
    # NumPy shows ['a' 'b'], which Python would join into one text: options would run together.
    if any(string[1] for string in _STRING.finditer(found)):
        return value
    try:
        return clean_json(ast.literal_eval(found.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value
