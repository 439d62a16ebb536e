"""Files that are written whole or not at all."""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from grpo_practice.errors import ConfigError
from grpo_practice.export.render import Files
from grpo_practice.plain_file import plain_file, replacement
from grpo_practice.redact import redactor


def write_files(path: Path, files: Files, *, force: bool = False) -> None:
    """Write each file at its place below `path`; the one with the place "" at `path` itself.

    Raises:
        ConfigError: `path` is there already and `force` is not set, or it cannot be written.
    """
    if not force:  # before the first of many is written
        check_free(path)
    for place, text in files.items():
        target = path / place
        if place:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise ConfigError(f"cannot write {target.parent}: {e.strerror}") from e
        write_file(target, text, force=force)


def write_file(path: Path, text: str, *, force: bool = False) -> None:
    """Make the file hold this text, without secrets, or leave it as it was; see `write_lines`."""
    write_lines(path, [text], force=force)


def write_lines(path: Path, lines: Iterable[str], *, force: bool = False) -> None:
    """Make the file hold these lines, without secrets, or leave it as it was.

    Links stay, and what they lead to is written. A device or a pipe is written to, and stays what
    it is.

    Raises:
        ConfigError: The file exists and `force` is not set, or it cannot be written.
    """
    if not force:
        check_free(path)
    _write(path, (redactor.text(line).encode() for line in lines), 0o644)


def write_section(path: Path, section: str) -> None:
    """Put the section, without secrets, into the file; all else in it stays as it is.

    Raises:
        ConfigError: The file cannot be read as text or written, or its marks are damaged.
    """
    # Needed only here: it brings the templates, and this file is imported for `--help`.
    from grpo_practice.export.agents_md import with_section

    section = redactor.text(section)
    text, mode = "", 0o644
    try:
        if plain_file(path) is not None and path.exists():
            text, mode = path.read_bytes().decode(), stat.S_IMODE(path.stat().st_mode)
        text = with_section(text, section)
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(
            f"{path} is no UTF-8 text (byte {e.start})", hint="name another file with -o"
        ) from e
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}", hint=e.hint) from e
    _write(path, [text.encode()], mode)


def _write(path: Path, parts: Iterable[bytes], mode: int) -> None:
    try:
        target = plain_file(path)
        if target is None:
            _write_to(path, parts)
        else:
            with replacement(target, mode=mode) as temporary:
                _write_to(temporary, parts)
    except OSError as e:
        folder = path.parent
        hint = None if folder.exists() else f"mkdir -p {quote(str(folder))}"
        raise ConfigError(f"cannot write {path}: {e.strerror}", hint=hint) from e


def check_free(path: Path) -> None:
    """Raise when something is there that could be lost; nothing is lost that a pipe was told."""
    if path.is_fifo() or path.is_char_device():
        return
    # A link that leads nowhere counts: somebody made it.
    if os.path.lexists(path):
        raise ConfigError(f"{path} is there already", hint="name another, or add --force")


def _write_to(path: Path, parts: Iterable[bytes]) -> None:
    if path.is_block_device():
        raise OSError(errno.ENOTSUP, "it is a disk, which this would destroy")
    with path.open("wb") as file:
        file.writelines(parts)
