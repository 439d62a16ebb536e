"""Output files that a person names: links are followed, and only a plain file is accepted."""

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


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
    # In the target's folder: a file is replaced atomically only within one file system.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        if flushed:
            # Content first, then name: after a power failure the target must not be an empty file.
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
