"""The import path of our Python processes: never the current folder, which anybody may fill.

Imports nothing but what every interpreter has loaded already: under `python -m` the current folder
is first in `sys.path` until `__main__` has called this.
"""

import os
import sys


def safe_path() -> list[str]:
    """Return `sys.path` without the current folder, however it came to be there.

    PYTHONPATH may name it by its full path: that is the user's word. The
    folder comes last where this package is installed in it.
    """
    named = [] if sys.flags.ignore_environment else _python_path()
    path = [entry for entry in sys.path if not _is_current(entry) or entry in named]
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    return path if home in path else [*path, home]


def safe_environment() -> dict[str, str]:
    """Return the environment for a new Python.

    `-P` is not enough for it: PYTHONPATH may have the current folder as `.`, and as nothing between
    two colons, and `sitecustomize` is imported from there before any code of ours.
    """
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(_python_path())}


def _python_path() -> list[str]:
    """Return PYTHONPATH without spellings of "wherever I am"."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in entries if os.path.isabs(entry) or not _is_current(entry)]  # noqa: PTH117


def _is_current(entry: str) -> bool:
    try:
        return os.path.samefile(entry or ".", ".")  # noqa: PTH121
    except OSError:  # nothing is there, so nothing can be imported from it
        return False
