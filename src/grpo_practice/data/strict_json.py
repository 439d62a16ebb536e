"""JSON as its standard has it: no NaN, no key twice, no number that is none."""

import json
import math
from typing import Any


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


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large a number")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} twice in one object")
    return fields


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_float, object_pairs_hook=_object)
