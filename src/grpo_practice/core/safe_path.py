"""The import path of our Python processes: never the current folder, which anybody may write to.

This module imports only modules that every interpreter has already loaded: with `python -m`, the
current folder is first in `sys.path` until `__main__` has called `safe_path`.
"""

import os
import sys


def safe_path() -> list[str]:
    """Return `sys.path` without the current folder, however it was added.

    The folder stays if PYTHONPATH contains its full path, because the user then wants it. If this
    package is installed in the current folder, the folder is appended at the end.
    """
    named = [] if sys.flags.ignore_environment else _python_path()
    path = [entry for entry in sys.path if not _is_current(entry) or entry in named]
    home = os.path.abspath(os.path.join(__file__, "../../.."))  # noqa: PTH100, PTH118
    return path if home in path else [*path, home]


def safe_environment() -> dict[str, str]:
    """Return the environment for a new Python process.

    The flag `-P` is not enough: PYTHONPATH may contain the current folder as `.` or as an empty
    entry between two colons, and `sitecustomize` is imported from there before any of our code
    runs.
    """
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(_python_path())}


def _python_path() -> list[str]:
    """Return the entries of PYTHONPATH without relative spellings of the current folder."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in entries if os.path.isabs(entry) or not _is_current(entry)]  # noqa: PTH117


def _is_current(entry: str) -> bool:
    try:
        return os.path.samefile(entry or ".", ".")  # noqa: PTH121
    except OSError:  # the entry does not exist, so nothing can be imported from it
        return False
