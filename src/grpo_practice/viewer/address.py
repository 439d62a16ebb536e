"""Addresses of the viewer's pages: parsing their queries and creating links."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import brief

Known = TypeVar("Known", bound=str)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """A template and the values to render it with."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)


class Query:
    """The query of an address, with typed access to its values."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a value; raise ConfigError if it is missing."""
        found = self._values.get(name, "")
        if not found:
            raise ConfigError(f"this address lacks {name}=…")
        return found

    def optional(self, name: str) -> str | None:
        """Return a value; None if it is missing or empty."""
        return self._values.get(name) or None

    def number(self, name: str, default: int | None = None) -> int:
        """Return a non-negative integer; raise ConfigError for anything else."""
        found = self.optional(name)
        if found is None and default is not None:
            return default
        return _whole(name, self.text(name))

    def optional_number(self, name: str) -> int | None:
        """Return a non-negative integer; None if it is missing."""
        return None if self.optional(name) is None else self.number(name)

    def numbers(self, name: str, n: int) -> tuple[int, ...] | None:
        """Return `n` numbers separated by dots, which identify a place; None if missing."""
        found = self.optional(name)
        return None if found is None else _wholes(name, found, n)

    def key(self, name: str) -> tuple[float, int, int, int] | None:
        """Return a number and a place, such as `0.5:3.1.2`; None if missing."""
        found = self.optional(name)
        if found is None:
            return None
        value, _, place = found.partition(":")
        step, slot, attempt = _wholes(name, place, 3)
        try:
            number = float(value[:40])
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ConfigError(f"this address has an unreadable {name}={brief(found, 40)}")
        return number, step, slot, attempt

    def paged(self, rows: Sequence[T], size: int) -> tuple[Sequence[T], dict[str, int | None]]:
        """Return the rows of a page, which begins at `from`, and the values for its links.

        `more` is the first row of the next page; None on the last page.
        """
        first = self.number("from", 0)
        end = first + size
        more = end if end < len(rows) else None
        return rows[first:end], {"first": first, "total": len(rows), "more": more}

    def choice(self, name: str, *known: Known) -> Known:
        """Return the value if it is known, or the first known value if it is missing."""
        given = self.optional(name) or known[0]
        for value in known:
            if value == given:
                return value
        raise ConfigError(
            f"this address has an unknown {name}={brief(given, 40)}",
            hint=f"the known values are {', '.join(known)}",
        )

    def link(self, path: str, **changes: object) -> str:
        """Return an address with this query, changed by these values; None removes a value."""
        return link(path, **{**self._values, **changes})


def link(path: str, **values: object) -> str:
    """Return the relative address of a page; values that are None are omitted.

    All pages lie in one folder, named by the token, which no page shows.
    """
    given = {name: value for name, value in values.items() if value is not None}
    return f".{path}?{urlencode(given)}" if given else f".{path}"


def _wholes(name: str, text: str, n: int) -> tuple[int, ...]:
    parts = text.split(".")
    if len(parts) != n:
        raise ConfigError(f"this address has an unreadable {name}={brief(text, 40)}")
    return tuple(_whole(name, part) for part in parts)


def _whole(name: str, text: str) -> int:
    # At most as many digits as an SQLite integer holds; ASCII only, since int() reads all scripts.
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise ConfigError(f"this address has an unreadable {name}={brief(text, 40)}")
    return int(text)
