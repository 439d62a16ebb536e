"""Another folder and other variables for a command that runs in the test's own process."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.util import get_temp_dir
from pathlib import Path

from grpo_practice.llm import client
from grpo_practice.llm.client import Client
from tests.fakes import FakeSleep


@contextmanager
def surroundings(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Work in a folder with these variables alone for the block; retries do not wait."""
    get_temp_dir()  # of multiprocessing: it outlives the folder
    before, here, words = dict(os.environ), Path.cwd(), sys.argv
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    tempfile.tempdir = None  # else TMPDIR is not looked at again
    setattr(client, "Client", partial(Client, sleep=FakeSleep()))  # noqa: B010
    try:
        yield
    finally:
        setattr(client, "Client", Client)  # noqa: B010
        sys.argv = words
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = None
