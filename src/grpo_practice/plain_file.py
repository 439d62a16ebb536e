"""The file that is written where a person names one: links lead to it, and nothing else is one."""

import os
import stat
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
