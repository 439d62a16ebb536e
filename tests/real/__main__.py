"""Runs the tests on the real model: `python -m tests.real [ARGUMENT OF PYTEST …]`."""

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
    tests = ("-m", "pytest", "-q", "-rs", "-s", "-o", "filterwarnings=default", *SLOW, "tests/real")
    return subprocess.run([python, *tests, *sys.argv[1:]], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
