"""Traces in a real Phoenix: spans by kind are as many as the store has, sent once or twice.

`python -m tests.phoenix` installs Phoenix once, into an environment of its own below `.phoenix/`
(150 packages, 0.8 GB, some minutes), starts it on loopback, and ends it.
"""

# ruff: noqa: T201

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.processes import free_port

FOLDER = Path(".phoenix").absolute()
START_S, STORE_S = 180, 180
QUIET = {
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
    "PHOENIX_AGENTS_DISABLE_BASH": "true",
    "PHOENIX_ENABLE_MCP_SERVER": "false",
}
"""Settings without which it sends statistics, and offers a shell."""
PROJECT = "practised"
TEACHES = ("summarise", "compare", "propose")


def installed() -> Path:
    """Return the command that starts Phoenix; install it where it is not there yet."""
    command = FOLDER / "bin" / "phoenix"
    if not command.exists():
        print(f"installing Phoenix into {FOLDER}, once: this takes some minutes", flush=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        pip = str(FOLDER / "bin" / "pip")
        quietly = ("install", "-q", "--disable-pip-version-check")
        subprocess.run([pip, *quietly, "arize-phoenix"], check=True)
    return command


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    """Run Phoenix while the block runs; yield its address."""
    folder.mkdir()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = os.environ | QUIET
    env |= {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port)}
    env |= {"PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_WORKING_DIR": str(folder)}
    log = (folder / "phoenix.log").open("w")
    with log, subprocess.Popen([installed(), "serve"], env=env, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + START_S
            while not healthy(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((folder / "phoenix.log").read_text()[-2000:])
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()


def healthy(url: str) -> bool:
    try:
        with urlopen(f"{url}/healthz", timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def spans(url: str, project: str) -> list[dict[str, Any]]:
    """Return all spans of a project."""
    found, cursor = list[dict[str, Any]](), ""
    while True:
        try:
            with urlopen(f"{url}/v1/projects/{project}/spans?limit=1000{cursor}") as reply:
                page = json.load(reply)
        except URLError:  # nothing of it is there yet
            return []
        found += page["data"]
        if not page.get("next_cursor"):
            return found
        cursor = f"&cursor={page['next_cursor']}"


def settled(url: str, project: str, wanted: int) -> list[dict[str, Any]]:
    """Return the spans of a project once so many are there, or no more have come for a while."""
    deadline, last, since = time.monotonic() + STORE_S, -1, time.monotonic()
    while True:
        found = spans(url, project)
        if len(found) != last:
            last, since = len(found), time.monotonic()
        still = time.monotonic() - since
        if (last >= wanted and still > 3) or still > 30 or time.monotonic() > deadline:
            return found
        time.sleep(1)


def stored(db: Path) -> Counter[str]:
    """Return what is stored of all runs, as kinds of spans."""
    with closing(sqlite3.connect(db)) as one:

        def count(sql: str) -> int:
            return int(one.execute(sql).fetchone()[0])

        taught = ", ".join(f"'{stage}'" for stage in TEACHES)
        groups = "SELECT DISTINCT branch_id, step, slot FROM"
        return Counter(
            LLM=count("SELECT count(*) FROM calls WHERE tries > 0"),
            AGENT=count("SELECT count(*) FROM rollouts"),
            EVALUATOR=count("SELECT count(*) FROM verdicts"),
            CHAIN=count(f"SELECT count(*) FROM ({groups} rollouts)")
            + count(f"SELECT count(*) FROM ({groups} calls WHERE stage IN ({taught}))")
            + count(f"SELECT count(*) FROM ({groups} calls WHERE stage = 'merge')"),
        )


def run(url: str, folder: Path, *words: str) -> None:
    env = os.environ | {"PHOENIX_ENDPOINT": url, "PHOENIX_PROJECT_NAME": PROJECT}
    command = [sys.executable, "-m", "grpo_practice", *words]
    subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        demo, db = here / "d", here / "d" / "grpo-practice.db"
        with phoenix(here / "whole") as url:
            run(url, here, "demo", "--keep", "d")
            wanted = stored(db)
            with closing(sqlite3.connect(db)) as one:
                runs = [run for (run,) in one.execute("SELECT run_id FROM runs")]
                texts = [text for (text,) in one.execute("SELECT question FROM samples")]
            print(f"the store      {dict(sorted(wanted.items()))}", flush=True)
            whole = received(url, "sent live", wanted)
            for n in ("once more", "once again"):
                for each in runs:
                    run(url, demo, "runs", "trace", each)
                received(url, f"sent {n}", wanted)
        # Another one: it knows spans by their ids, whichever project they are sent to.
        with phoenix(here / "bare") as url:
            for each in runs:
                run(url, demo, "runs", "trace", each, "--trace-content", "no")
            bare = received(url, "without texts", wanted)
        questions = [json.dumps(text)[1:-1] for text in texts]
        assert any(question in json.dumps(whole) for question in questions)
        assert not any(question in json.dumps(bare) for question in questions)
        assert {span["status_code"] for span in whole} == {"OK"}
        assert {span["attributes"].get("session.id") for span in whole} == set(runs)
        print("ok: as many spans of each kind as the store has, also sent again;")
        print("without content no question is in what was received")


def received(url: str, what: str, wanted: Counter[str]) -> list[dict[str, Any]]:
    """Return what Phoenix has, once that stands still; it has to be what is stored."""
    found = settled(url, PROJECT, sum(wanted.values()))
    kinds = Counter(span["span_kind"] for span in found)
    print(f"{what:<14} {dict(sorted(kinds.items()))}", flush=True)
    assert kinds == wanted
    return found


if __name__ == "__main__":
    main()
