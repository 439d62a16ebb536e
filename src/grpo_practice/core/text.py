"""Text from outside: extract its answer, and show it so that nothing in it takes effect."""

import ipaddress
import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

CHARS_PER_TOKEN = 4
"""Characters per token of common English text; also UTF-8 bytes per token of most languages."""
DENSE_CHARS_PER_TOKEN = 3
"""Characters per token of formulas and code, and UTF-8 bytes per token of JSON.

With this ratio, the number of tokens is an upper bound.
"""
SPARSE_CHARS_PER_TOKEN = 5
"""Characters per token of any text; with this ratio, the number of tokens is a lower bound."""

LOOPBACK = "127.0.0.1"
"""Address that our own servers listen on, reachable only from this machine."""

CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Ranges of a character class: scripts without spaces, in which each character counts as a word."""

FILES_LOOKED_AT = 1000
"""Maximum number of directory entries searched for a similar file name."""

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".gz")
"""File name suffixes of datasets."""

_THINK = re.compile("</?think>")


_FILE = "file://"


def folded(question: str) -> str:
    """Normalise case and spaces of a question."""
    return " ".join(question.casefold().split())


def folder_text(folder: Path) -> str:
    """Return an absolute folder as text that can be stored: a file URL if it is not UTF-8."""
    name = os.fsencode(folder)
    try:
        return name.decode()
    except UnicodeDecodeError:
        return _FILE + quote_from_bytes(name)


def folder_of(text: str) -> Path:
    """Return the folder that `folder_text` converted to this text."""
    if text.startswith(_FILE):
        return Path(os.fsdecode(unquote_to_bytes(text.removeprefix(_FILE))))
    return Path(text)


def is_data_file(dataset: object) -> bool:
    """Return whether the dataset is a file rather than the name of an uploaded dataset."""
    return isinstance(dataset, str) and PurePath(dataset).suffix.lower() in DATA_SUFFIXES


def is_web_address(url: str) -> bool:
    """Return True for an http:// or https:// URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return True for a host name or address of this machine: data sent there never leaves it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def strip_think(text: str) -> str | None:
    """Remove the `<think>` blocks of a text; return None if a block is never closed.

    A closing tag without an opening one ends a block that began in the prompt: all text before it
    is removed, too.
    """
    spans = think_spans(text)
    if spans and spans[-1].thought and not spans[-1].closed:
        return None
    return "".join(span.text for span in spans if not span.thought)


@dataclass(frozen=True, slots=True)
class Span:
    """A section of a reply: reasoning or answer."""

    text: str
    """Text without the tags."""
    thought: bool
    closed: bool = True
    """False for a `<think>` block that is never closed."""


def think_spans(text: str) -> list[Span]:
    """Split a reply into the sections inside and outside `<think>` blocks, in order."""
    if "think>" not in text:
        return [Span(text, False)]
    spans = list[Span]()
    at, inside, begun_in_prompt = 0, False, 0
    for tag in _THINK.finditer(text):
        if inside and tag[0] == "<think>":
            continue
        ended = tag[0] == "</think>"
        spans.append(Span(text[at : tag.start()], thought=ended))
        if ended and not inside:  # the block began in the prompt: all text so far is reasoning
            begun_in_prompt = len(spans)
        inside = not ended
        at = tag.end()
    spans.append(Span(text[at:], inside, closed=not inside))
    n = begun_in_prompt
    first = [Span("".join(span.text for span in spans[:n]), True)] if n else []
    return [*first, *spans[n:]]


def visible(text: str) -> str:
    r"""Escape control, format and unassigned characters of a text.

    Line breaks and tabs stay; a carriage return, an escape sequence or a change of writing
    direction becomes `\r`, `\x1b`, `\u202e`.
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def brief(text: str, chars: int) -> str:
    """Return the text on one line of at most `chars` characters, with `…` at the cut."""
    # Cut first, because text from outside may be megabytes long.
    line = visible(" ".join(text[: 4 * chars].split()))
    return line if len(line) <= chars and len(text) <= 4 * chars else f"{line[: chars - 1]}…"


def similar(error: str) -> str:
    """Return the part that similar errors share: quotations and numbers become `…`."""
    return re.sub(r"""'[^'\n]*'|"[^"\n]*"|\d+""", "…", error)


def unlike(a: str, b: str, chars: int) -> tuple[str, str]:
    """Return `brief` of both texts; if these are equal, begin both near the first difference."""
    if a == b or brief(a, chars) != brief(b, chars):
        return brief(a, chars), brief(b, chars)
    same = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    # Start a little earlier, so that the difference has some context before it.
    at = max(same - chars // 4, 0)
    return f"…{brief(a[at:], chars - 1)}", f"…{brief(b[at:], chars - 1)}"


def to_the_minute(stored: str) -> str:
    """Format a stored time, which is in UTC, to the minute."""
    return f"{stored[:10]} {stored[11:16]}"


def count(n: int, noun: str) -> str:
    """Return `1 rollout`, `2 rollouts`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")


def ordinal(n: int) -> str:
    """Return `first` to `ninth`, then `10th`, `11th`, `22nd` and so on."""
    if n <= len(_ORDINALS):
        return _ORDINALS[n - 1]
    teen = n % 100 // 10 == 1
    return f"{n}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def nearest(name: str, known: Iterable[str], *, most: int = 2) -> str | None:
    """Return the question whether a similar known name was meant; None if no name is similar."""
    from difflib import get_close_matches  # imported late: only error messages need it

    folded = {one.casefold(): one for one in sorted(known)}
    # Compared without case, since difflib counts `Math` and `math` as different letters.
    near = [folded[one] for one in get_close_matches(name.casefold(), folded, n=most)]
    return f"did you mean {' or '.join(near)}?" if near else None


def nearest_file(path: Path) -> str | None:
    """Return the question whether a similar file was meant instead of a missing one, or None."""
    try:
        with os.scandir(path.parent) as found:
            names = [one.name for one in islice(found, FILES_LOOKED_AT) if one.is_file()]
    except OSError:
        return None
    # Compare the stems, because a common suffix such as `.jsonl` does not make two names similar.
    alike = [name for name in names if nearest(path.stem, [Path(name).stem])]
    return None if path.name in names else nearest(path.name, alike, most=1)


def cut(text: str, chars: int) -> str:
    """Return the text, or its first `chars` characters and the number of characters left out."""
    left = len(text) - chars
    return text if left <= 0 else f"{text[:chars]} … [{left:,} more characters]"


def _shown(char: str) -> str:
    if char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode()
