"""stdin, stdout and stderr as the shell gave them: closed, full, or read by nobody any more."""

import errno
import io
import os
import signal
import sys
from contextlib import suppress

UNREAD = 128 + signal.SIGPIPE
"""Exit code of a command whose output nobody reads to the end."""
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Open what is closed of the three, and let any text be printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_theirs(error: Exception) -> bool:
    """Return True for an error of writing to stdout or stderr; other files' errors name them."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE


def lost(error: OSError) -> int:
    """Report a failed write (unless the pipe was closed) and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # what is left would be tried again, and complained of, at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if error.errno == errno.EPIPE:
        return UNREAD
    with suppress(OSError):
        print(f"error: cannot write the output: {error.strerror}", file=sys.stderr, flush=True)
    return 1


def finish(code: int) -> int:
    """Flush the output and return the exit code; another one where it cannot be written."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as e:
        return lost(e) or code
    return code
