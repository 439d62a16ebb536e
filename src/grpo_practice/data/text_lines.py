"""A file's bytes, as lines of text: packed or not, from a disk or from a pipe."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from grpo_practice.errors import ConfigError, DataError
from grpo_practice.text import nearest_file

STDIN = Path("-")
"""Stands for what is piped in."""
GZIP = b"\x1f\x8b"
"""First bytes of gzip, and of no UTF-8 text."""
UTF8_MARK = b"\xef\xbb\xbf"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
MAX_LINE = 1 << 28
"""Bytes of a line; a longer one is no row of text."""
MAX_STREAM = 1 << 30
"""Bytes of text whose length no folder shows beforehand: unpacked, or piped in."""
MAX_LINES = 1 << 24
"""Lines of such a text: blank ones are short, and there may be a billion of them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row as the file has it."""

    place: str
    """The line it begins on, from 1; in a JSON list, which may be all one line, `1 (row 7)`."""
    fields: dict[str, Any]
    within: str | None = None
    """Key of the list that holds it, in a file that is one object."""


class _Bytes(Protocol):
    """The part of a binary file that is needed here."""

    def readline(self, size: int = -1, /) -> bytes:
        """Read the next line, or so many bytes of it."""
        ...


def shown(path: Path) -> str:
    """Return what messages call the file."""
    return "stdin" if path == STDIN else str(path)


def at(path: Path, place: object, message: str, *, hint: str | None = None) -> DataError:
    """Make an error that says where: `file:7: message`."""
    return DataError(f"{shown(path)}:{place}: {message}", hint=hint)


def through(path: Path, command: str, kind: str) -> str:
    """Write the command that makes a better file of this one: `tr … < a.csv > lf-a.csv`."""
    if path == STDIN:
        return f"put `{command}` before it in the pipe"
    if path.suffix.lower() == ".gz":
        return f"gunzip -c {path.name} | {command} > {kind}-{path.stem}"
    return f"{command} < {path.name} > {kind}-{path.name}"


def lines(path: Path) -> Iterator[str]:
    """Yield the file's lines with their ends, without the byte order mark; unpack gzip.

    Raises:
        DataError: It cannot be read, is cut off or no UTF-8, or a line or the whole is too long.
        ConfigError: It is `-`, and nothing is piped in.
    """
    number = size = 0
    try:
        with _open(path) as (file, bounded):
            for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
                size += len(raw)
                if len(raw) > MAX_LINE:
                    raise at(path, number, f"the line is longer than {MAX_LINE >> 20} MiB")
                if bounded and (size > MAX_STREAM or number > MAX_LINES):
                    raise _too_much(path, number)
                yield _decode(path, number, raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        what = "the gzip file is cut off" if isinstance(e, EOFError) else "the gzip file is broken"
        raise at(path, number + 1, f"{what} here", hint="pack it, or fetch it, again") from e
    except OSError as e:
        why = f"cannot read {shown(path)}: {e.strerror or e}"
        raise DataError(why, hint=None if path == STDIN else nearest_file(path)) from e


def _too_much(path: Path, number: int) -> DataError:
    how = "piped in" if path == STDIN else "unpacked"
    return at(
        path,
        number,
        f"more than {MAX_STREAM >> 30} GiB or {MAX_LINES:,} lines of text, {how}",
        hint="if that is right, save it as a plain file first",
    )


@contextmanager
def _open(path: Path) -> Iterator[tuple[_Bytes, bool]]:
    """Yield the bytes to read, and whether there may be any number of them."""
    with _pipe() if path == STDIN else _file(path) as file:
        if not file.peek(len(GZIP)).startswith(GZIP):
            yield file, path == STDIN
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked, True


@contextmanager
def _pipe() -> "Iterator[io.BufferedReader[Any]]":
    stdin = sys.stdin
    if stdin is None or stdin.isatty():
        raise ConfigError(
            "nothing is piped in",
            hint="for example: zcat rows.gz | grpo-practice data upload - --format jsonl --name d",
        )
    # A buffer of our own waits for enough to tell what it is, however little the pipe gives.
    file: io.BufferedReader[Any] = io.BufferedReader(cast("io.RawIOBase", stdin.buffer))
    try:
        yield file
    finally:
        file.detach()  # stdin stays open


@contextmanager
def _file(path: Path) -> "Iterator[io.BufferedReader[Any]]":
    if path.exists() and not path.is_file():  # a pipe may never end, or never begin
        raise DataError(f"{path} is not a regular file", hint="save it as a file, or pipe it: -")
    with path.open("rb") as file:
        if path.suffix.lower() == ".gz" and not file.peek(len(GZIP)).startswith(GZIP):
            raise DataError(
                f"{path} is not a gzip file", hint="rename it without .gz, if it is text"
            )
        yield file


def _decode(path: Path, number: int, raw: bytes) -> str:
    # Raised, never skipped: skipping would drop just the rows with an accent.
    if number == 1 and raw.startswith(WIDE_MARKS):
        raise at(path, 1, "the file is UTF-16, not UTF-8", hint=_convert(path, "UTF-16"))
    if b"\0" in raw:
        raise at(path, number, "a NUL byte: the file is UTF-16 without a mark, or is no text")
    try:
        return (raw.removeprefix(UTF8_MARK) if number == 1 else raw).decode()
    except UnicodeDecodeError as e:
        byte = e.object[e.start]
        message = f"byte 0x{byte:02x} is not UTF-8; the file may be Latin-1"
        raise at(path, number, message, hint=_convert(path, "LATIN1")) from e


def _convert(path: Path, encoding: str) -> str:
    return through(path, f"iconv -f {encoding} -t UTF-8", "utf8")
