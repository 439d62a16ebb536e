"""Scores do not depend on streaming, concurrency or server, and no answer is lost."""

import itertools
import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.processes import until
from tests.real.folder import Folder
from tests.real.questions import capitals, facts, library, parts
from tests.real.servers import Server

SETTINGS = {"temperature": 0.7, "max_tokens": 16}
WAYS = tuple(itertools.product((False, True), (1, 8)))


def asks_capitals(folder: Folder, server: Server, name: str, *, stream: bool, at_once: int) -> None:
    """Write a config that asks for capitals in this way."""
    folder.config(
        name,
        name,
        server,
        stream=stream,
        settings=SETTINGS,
        instructions="Answer the question in one short sentence.",
        evaluation={
            "verify": "contains",
            "data": {"dataset": "capitals"},
            "pass_k": 2,
            "concurrency": at_once,
        },
    )


def table(name: str, score: dict[str, Any]) -> None:
    low, high = score["ci95"]
    print(f"\n{name}: {score['mean']:.3f} ({low:.3f} to {high:.3f})", end="")  # noqa: T201


@pytest.mark.parametrize("server_name", ["llama", "transformers"])
def test_streaming_and_concurrency_change_no_score(
    folder: Folder, server_name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(server_name)
    scores = []
    for stream, at_once in WAYS:
        name = f"{server.name}-{'stream' if stream else 'whole'}-{at_once}".replace(".", "")
        # A database of its own: stored answers serve all of these ways.
        own = Folder(folder.path / name)
        own.path.mkdir()
        own.upload("capitals", parts(capitals(), 24)[0])
        asks_capitals(own, server, name, stream=stream, at_once=at_once)
        done = own.json("eval", "--config", f"{name}.yaml")
        assert done["requests"]["new"] == 48
        assert done["score"]["scored"] == done["score"]["planned"] == 48
        assert set(done["outcomes"]) <= {"ok", "truncated"}, done["outcomes"]
        table(name, done["score"])
        scores.append(done["score"])
    for one, other in itertools.combinations(scores, 2):
        # Four standard errors: a difference that chance makes in one run of 16,000.
        allowed = 4 * (one["se"] ** 2 + other["se"] ** 2) ** 0.5
        assert abs(one["mean"] - other["mean"]) <= allowed


def test_an_answer_that_only_the_library_has(folder: Folder, llama: Server) -> None:
    folder.upload("facts", facts())
    folder.config(
        "facts",
        "facts",
        llama,
        settings=SETTINGS | {"max_tokens": 24},
        instructions="Answer in one short sentence.",
        evaluation={"verify": "contains", "data": {"dataset": "facts"}, "pass_k": 2},
    )
    lines = "".join(f"  - {text!r}\n" for text in library())
    (folder.path / "hand.yaml").write_text(f"experiences:\n{lines}", "utf-8")
    arms = folder.json("eval", "--config", "facts.yaml", "--arms", "none,hand.yaml,filler")
    for arm in arms["arms"]:
        table(arm["named"], arm["score"])
    by_name = {arm["run"]: arm["named"] for arm in arms["arms"]}
    to_hand = [c for c in arms["contrasts"] if by_name[c["arm"]] == "hand.yaml"]
    assert {by_name[c["baseline"]] for c in to_hand} == {"none", "filler"}
    for contrast in to_hand:
        assert contrast["difference"]["ci95"][0] > 0


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_evaluation_that_is_stopped_goes_on(
    folder: Folder, llama: Server, end: signal.Signals
) -> None:
    folder.upload("capitals", parts(capitals(), 24)[0])
    asks_capitals(folder, llama, "stopped", stream=True, at_once=4)
    process = folder.begin("eval", "--config", "stopped.yaml")
    database = folder.path / "grpo-practice.db"

    def answers() -> int:
        # Several connections read while one writes; the file may not have its tables yet.
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            try:
                return int(db.execute("SELECT count(*) FROM calls").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    until(lambda: answers() >= 8, process)
    process.send_signal(end)
    process.communicate(timeout=600)
    assert process.returncode not in (0, None)
    kept = answers()
    assert 8 <= kept < 48
    done = folder.json("eval", "--config", "stopped.yaml")
    assert done["score"]["scored"] == 48
    assert answers() == 48, "an answer was asked for twice, or is missing"
    assert done["requests"]["new"] == 48 - kept
