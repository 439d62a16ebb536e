"""Runs the tests on the real model, or some of them: `python -m tests.real [FILE …] [OPTION …]`."""

import os
import subprocess
import sys

from tests.real import install

SLOW = ("-o", "faulthandler_timeout=3600")
"""A test of minutes is no hang here; each command has a limit of its own."""


def main() -> int:
    """Install what is missing, and run pytest."""
    python = install.python()
    install.model(python)
    env = os.environ | {"REAL_MODEL": "1"}
    tests = ("-m", "pytest", "-q", "-rs", "-s", "-o", "filterwarnings=default", *SLOW)
    given = sys.argv[1:] or ["tests/real"]
    return subprocess.run([python, *tests, *given], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
