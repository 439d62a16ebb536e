"""Handles a stdin, stdout or stderr that is closed, full, or no longer read."""

import errno
import io
import os
import signal
import sys
from contextlib import suppress

UNREAD = 128 + signal.SIGPIPE
"""Exit code of a command whose output pipe was closed early."""
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Reopen closed standard streams as /dev/null, and make any text printable."""
    # Otherwise the next file that is opened, such as the database, would become stdout.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # opens as the lowest free number, which is `number`
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_theirs(error: Exception) -> bool:
    """Return whether an error comes from writing to stdout or stderr.

    An OSError from any other file has its `filename` set.
    """
    return isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE


def lost(error: OSError) -> int:
    """Report a failed write, unless the pipe was closed, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # Python would flush again at exit, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if error.errno == errno.EPIPE:
        return UNREAD
    with suppress(OSError):
        print(f"error: cannot write the output: {error.strerror}", file=sys.stderr, flush=True)
    return 1


def finish(code: int) -> int:
    """Flush the output and return the exit code, or another code if flushing fails."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as e:
        return lost(e) or code
    return code
