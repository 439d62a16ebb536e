"""Another folder and other variables for a command that runs in the test's own process."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from pathlib import Path


@contextmanager
def surroundings(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Work in a folder with these variables alone for the block."""
    get_temp_dir()  # of multiprocessing: it outlives the folder
    before, here, words = dict(os.environ), Path.cwd(), sys.argv
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    tempfile.tempdir = None  # else TMPDIR is not looked at again
    try:
        yield
    finally:
        sys.argv = words
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = None
