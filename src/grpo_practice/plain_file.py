"""The file that is written where a person names one: links lead to it, and nothing else is one."""

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def plain_file(path: Path) -> Path | None:
    """Return the plain file that the name leads to, whether it is there or not.

    None means that something else is there: a folder, a device, a pipe, a socket.

    Raises:
        OSError: The name leads nowhere, as a link to itself does.
    """
    real = Path(os.path.realpath(path))
    try:
        found = path.stat()
    except FileNotFoundError:
        return real
    # /dev/stdout may lead to a file that has no name any more.
    named = real.exists() and os.path.samestat(found, real.stat())
    return real if named and stat.S_ISREG(found.st_mode) else None


@contextmanager
def replacement(
    target: Path, *, mode: int, flushed: bool = False, parts: Sequence[str] = ()
) -> Iterator[Path]:
    """Yield an empty file that takes the target's place where the block ends well, else is removed.

    Args:
        target: A plain file, or a name that is free.
        mode: Permissions of the file; only its owner's until it is in place.
        flushed: Whether it is on disk, name and all, once the block has ended.
        parts: Ends of the names of further files that the block may leave beside it.
    """
    # Beside the target: a file is replaced atomically within one file system only.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        if flushed:
            # The content before the name: after a power cut the target must not be an empty file.
            _flush(temporary)
        temporary.replace(target)
        if flushed:
            # A new name is on disk only once its folder is.
            _flush(target.parent)
    finally:
        for end in ("", *parts):
            Path(name + end).unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush the file, or the folder's list of files, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
