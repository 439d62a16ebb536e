"""Output files that a person names: links are followed, and each file is replaced as a whole."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redactor

DATABASE = b"SQLite format 3\0"
"""First bytes of an SQLite database."""


def plain_file(path: Path) -> Path | None:
    """Return the plain file that the path leads to, whether or not it exists.

    None means that the path leads to something else: a folder, a device, a pipe, a socket.

    Raises:
        OSError: The path cannot be resolved, such as a link to itself.
    """
    real = Path(os.path.realpath(path))
    try:
        found = path.stat()
    except FileNotFoundError:
        return real
    # /dev/stdout may lead to a deleted file, which has no name to write to.
    named = real.exists() and os.path.samestat(found, real.stat())
    return real if named and stat.S_ISREG(found.st_mode) else None


@contextmanager
def replacement(
    target: Path, *, mode: int, flushed: bool = False, parts: Sequence[str] = ()
) -> Iterator[Path]:
    """Yield an empty file that replaces the target if the block succeeds; otherwise remove it.

    Args:
        target: A plain file, or a path that does not exist yet.
        mode: Final permissions of the file; until it is in place, only its owner can read it.
        flushed: Whether the file and its name are on disk once the block has ended.
        parts: Suffixes of further files that the block may create next to it; they are removed.
    """
    # Create it in the target's folder, because a file is replaced atomically only within one file
    # system.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        if flushed:
            # Flush the content before the name, so that a power failure cannot leave an empty
            # target.
            _flush(temporary)
        temporary.replace(target)
        if flushed:
            # A new name is on disk only after its folder has been flushed.
            _flush(target.parent)
    finally:
        for end in ("", *parts):
            # The file itself is gone if it has already replaced the target.
            Path(name + end).unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush the file, or the directory entries of the folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_files(path: Path, files: Mapping[str, str], *, force: bool = False) -> None:
    """Write each file at its relative path below `path`; an empty one stands for `path` itself.

    Raises:
        ConfigError: `path` exists and `force` is not set, or a file cannot be written.
    """
    if not force:  # before writing the first of many files
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
    """Write the text to the file, without secrets, or leave the file unchanged.

    See `write_lines`.
    """
    write_lines(path, [text], force=force)


def write_lines(path: Path, lines: Iterable[str], *, force: bool = False) -> None:
    """Write the lines to the file, without secrets, or leave the file unchanged.

    A symbolic link is kept and its target is written. A device or a pipe is written to directly.

    Raises:
        ConfigError: The file exists and `force` is not set, or it cannot be written.
    """
    if not force:
        check_free(path)
    # Lazily: an export of a large run may not fit into memory.
    replace_file(path, (redactor.text(line).encode() for line in lines), 0o644)


def replace_file(path: Path, parts: Iterable[bytes], mode: int) -> None:
    """Replace the file's contents with these bytes, or leave it unchanged; see `write_lines`."""
    try:
        # None for a device or a pipe, which must not be replaced by a regular file.
        target = plain_file(path)
        if target is None:
            _write_to(path, parts)
        else:
            _check_no_database(target)
            with replacement(target, mode=mode) as temporary:
                _write_to(temporary, parts)
    except OSError as e:
        folder = path.parent
        hint = None if folder.exists() else f"mkdir -p {quote(str(folder))}"
        raise ConfigError(f"cannot write {path}: {e.strerror}", hint=hint) from e


def _check_no_database(target: Path) -> None:
    """Raise ConfigError for an SQLite database, or a log of one, which `--force` must not replace.

    The log may hold answers that were paid for and that no other file contains yet.
    """
    for end in ("", "-wal", "-shm", "-journal"):
        database = Path(str(target).removesuffix(end))
        if database.is_file():
            with database.open("rb") as file:
                if file.read(len(DATABASE)) == DATABASE:
                    what = "a database" if database == target else f"a part of {database}"
                    raise ConfigError(f"{target} is {what}", hint="choose another path")


def check_free(path: Path) -> None:
    """Raise ConfigError if the path has contents that could be lost, unlike a pipe or a device."""
    if path.is_fifo() or path.is_char_device():
        return
    # lexists: a dangling link was made on purpose, too.
    if os.path.lexists(path):
        raise ConfigError(f"{path} already exists", hint="choose another path, or add --force")


def _write_to(path: Path, parts: Iterable[bytes]) -> None:
    if path.is_block_device():
        raise OSError(errno.ENOTSUP, "it is a disk, and this would overwrite it")
    with path.open("wb") as file:
        file.writelines(parts)
