"""Read the lines of a text file, optionally gzipped, from disk or from standard input."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.text import nearest_file

STDIN = Path("-")
"""Path that means standard input."""
GZIP = b"\x1f\x8b"
"""First bytes of a gzip file; valid UTF-8 text never starts with them."""
UTF8_MARK = b"\xef\xbb\xbf"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
MAX_LINE = 1 << 28
"""Maximum number of bytes in a line."""
MAX_STREAM = 1 << 30
"""Maximum number of bytes of text with unknown total size: decompressed, or from standard input."""
MAX_LINES = 1 << 24
"""Maximum number of lines of such text; blank lines are short, so a small file may contain
billions.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as stored in the file."""

    place: str
    """Line on which the row begins, from 1; for a row of a JSON list, which may be a single line,
    `1 (row 7)`.
    """
    fields: dict[str, Any]
    within: str | None = None
    """Key of the list that contains the row, if the file is one object."""


def shown(path: Path) -> str:
    """Return the name of the file for use in messages."""
    return "stdin" if path == STDIN else str(path)


def at(path: Path, place: object, message: str, *, hint: str | None = None) -> DataError:
    """Build an error that includes the location: `file:7: message`."""
    return DataError(f"{shown(path)}:{place}: {message}", hint=hint)


def through(path: Path, command: str, kind: str) -> str:
    """Build the command that converts this file: `tr … < a.csv > lf-a.csv`."""
    if path == STDIN:
        return f"put `{command}` before it in the pipe"
    if path.suffix.lower() == ".gz":
        return f"gunzip -c {path.name} | {command} > {kind}-{path.stem}"
    return f"{command} < {path.name} > {kind}-{path.name}"


def lines(path: Path) -> Iterator[str]:
    """Yield the file's lines including line ends, without the byte order mark; decompress gzip.

    Raises:
        DataError: The file is unreadable, truncated, too long or not UTF-8, or a line is too long.
        ConfigError: The path is `-`, and standard input is a terminal.
    """
    number = size = 0
    try:
        with _open(path) as (file, bounded):
            # One byte above the limit reveals a line that is too long without reading all of it.
            for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
                size += len(raw)
                if len(raw) > MAX_LINE:
                    raise at(path, number, f"the line is longer than {MAX_LINE >> 20} MiB")
                if bounded and (size > MAX_STREAM or number > MAX_LINES):
                    raise _too_much(path, number)
                yield _decode(path, number, raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        what = "the gzip file is cut off" if isinstance(e, EOFError) else "the gzip file is broken"
        raise at(path, number + 1, f"{what} here", hint="compress or download it again") from e
    except OSError as e:
        why = f"cannot read {shown(path)}: {e.strerror or e}"
        raise DataError(why, hint=None if path == STDIN else nearest_file(path)) from e


def _too_much(path: Path, number: int) -> DataError:
    how = "piped-in" if path == STDIN else "unpacked"
    return at(
        path,
        number,
        f"the {how} text has more than {MAX_STREAM >> 30} GiB or {MAX_LINES:,} lines",
        hint="if that is intended, save it as a plain file first",
    )


@contextmanager
def _open(path: Path) -> "Iterator[tuple[io.BufferedReader[Any] | gzip.GzipFile, bool]]":
    """Yield the file to read, and whether its size must be limited while reading."""
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
    # Our own buffer's `peek` waits for enough bytes to recognise gzip, however slow the pipe.
    file: io.BufferedReader[Any] = io.BufferedReader(cast("io.RawIOBase", stdin.buffer))
    try:
        yield file
    finally:
        file.detach()  # otherwise the garbage collector would close stdin with the buffer


@contextmanager
def _file(path: Path) -> "Iterator[io.BufferedReader[Any]]":
    if path.exists() and not path.is_file():  # opening or reading a named pipe may block forever
        raise DataError(
            f"{path} is not a regular file", hint="save it as a file, or pipe it in and name it `-`"
        )
    with path.open("rb") as file:
        if path.suffix.lower() == ".gz" and not file.peek(len(GZIP)).startswith(GZIP):
            raise DataError(
                f"{path} is not a gzip file", hint="rename it without .gz, if it is text"
            )
        yield file


def _decode(path: Path, number: int, raw: bytes) -> str:
    # Raise even with --skip-bad: skipping would drop exactly the rows with accented characters.
    if number == 1 and raw.startswith(WIDE_MARKS):
        raise at(path, 1, "the file is UTF-16, not UTF-8", hint=_convert(path, "UTF-16"))
    if b"\0" in raw:
        raise at(
            path,
            number,
            "a NUL byte was found; the file is UTF-16 without a byte order mark, or is not text",
        )
    try:
        return (raw.removeprefix(UTF8_MARK) if number == 1 else raw).decode()
    except UnicodeDecodeError as e:
        byte = e.object[e.start]
        message = f"byte 0x{byte:02x} is not UTF-8; the file may be Latin-1"
        raise at(path, number, message, hint=_convert(path, "LATIN1")) from e


def _convert(path: Path, encoding: str) -> str:
    return through(path, f"iconv -f {encoding} -t UTF-8", "utf8")
