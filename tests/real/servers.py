"""Servers of the real model on loopback, each a process of its own."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.processes import free_port
from tests.real.install import FOLDER, GGUF, WEIGHTS

START_S = 600.0
"""Seconds until a server that does not start is given up."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and the name of its model."""

    name: str
    base_url: str
    model: str


@contextmanager
def llama(python: Path, slots: int = 4) -> Iterator[Server]:
    """Serve the model by llama.cpp, which answers as many requests at once as it has slots."""
    port = free_port()
    words = (str(python), "-m", "tests.real.llama", str(GGUF), str(port), str(slots))
    with _served(words, port):
        yield Server("llama.cpp", f"http://127.0.0.1:{port}/v1", "smollm2-135m-instruct")


@contextmanager
def transformers(python: Path) -> Iterator[Server]:
    """Serve the weights by `transformers serve`; requests may name any folder as their model."""
    port = free_port()
    serve = (str(python.with_name("transformers")), "serve")
    with _served((*serve, "--host", "127.0.0.1", "--port", str(port)), port):
        yield Server("transformers", f"http://127.0.0.1:{port}/v1", str(WEIGHTS))


@contextmanager
def _served(words: tuple[str, ...], port: int) -> Iterator[None]:
    # Nothing here needs the hub, and a slow answer from it would look like a slow model.
    env = os.environ | {"HF_HUB_OFFLINE": "1"} | {"OMP_NUM_THREADS": "1"}
    log = FOLDER / f"{port}.log"
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=env)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(port):
            assert process.poll() is None, log.read_text("utf-8")[-2000:]
            assert time.monotonic() < deadline, log.read_text("utf-8")[-2000:]
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(port: int) -> bool:
    try:
        # Not `/v1/models`, which transformers answers with a 500 if the hub's cache does not exist.
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False
