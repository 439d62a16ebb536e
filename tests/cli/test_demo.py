"""The demo does the whole job, says that it is simulated, and leaves what it promises."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_practice.practice import METHOD
from grpo_practice.rollout.chat_server import sim_server
from grpo_practice.sim.world import Failing, World
from tests.cli.conftest import Gp
from tests.processes import HANG_S, program

LEARNT = {2: ["0f0a025b", "b792d84e", "185f031a", "185f031a"]}
"""Method → the hashes of the libraries that the demo's steps make, each its first 8 digits."""


def test_the_demo_improves_its_agent_and_says_it_is_simulated(gp: Gp) -> None:
    ran = gp("demo")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("Everything here is simulated")
    scores = [
        float(line.split()[1])
        for line in ran.out.splitlines()
        if line.split()[:1] in (["before"], ["after"])
    ]
    assert len(scores) == 2
    assert scores[0] < scores[1]
    assert "(simulated: says nothing about a real model)" in ran.out
    assert ran.out.splitlines()[-1].startswith("next: grpo-practice init")
    assert list(Path().iterdir()) == []


def test_a_kept_demo_can_be_gone_on_with(demo: Gp) -> None:
    assert {path.name for path in Path().iterdir()} >= {
        *("practice.yaml", "practice.jsonl", "test.jsonl", "agent.yaml", "grpo-practice.db")
    }
    ran = demo("practice", "--config", "practice.yaml", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["requests"] == {"new": 0, "failed": 0}
    assert ran.document["simulated"] is True


def test_the_demo_learns_what_this_method_learns(demo: Gp) -> None:
    document = demo("practice", "--config", "practice.yaml", "--json").document
    hashes = document["library_shas"].values()
    assert {METHOD: [sha[:8] for sha in hashes]} == LEARNT, (
        "a run comes to other libraries than before: raise practice.METHOD, unless it is only the"
        " prompts or the simulation that changed; then bring LEARNT up to date"
    )


def test_the_demo_overwrites_nothing(gp: Gp) -> None:
    Path("full").mkdir()
    Path("full/mine").write_text("x")
    ran = gp("demo", "--keep", "full")
    assert (ran.code, ran.out) == (2, "")
    assert [path.name for path in Path("full").iterdir()] == ["mine"]


NOT_SERVED = {
    "alone": ([], "--world works only with --serve", "add --serve 0"),
    "no file": (["--serve", "0"], "cannot read the world w.json: No such file", '{"seed": 3}'),
    "no JSON": (["--serve", "0"], "w.json is not a world: Invalid JSON", "its keys are seed, "),
    "a key": (["--serve", "0"], "w.json is not a world: jittre: ", "jitter, drift, fail;"),
    "a value": (["--serve", "0"], "w.json is not a world: fail: right and wrong must", "its keys"),
}
"""What is wrong with `--world w.json`, the other words, and what the error and its hint say."""
FILES = {
    "alone": "{}",
    "no JSON": "seed: 3",
    "a key": '{"jittre": 1}',
    "a value": '{"fail": {"right": 2}}',
}


@pytest.mark.parametrize("case", NOT_SERVED)
def test_a_world_that_cannot_be_served_is_an_error_with_a_way_out(
    gp: Gp, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_server, "serve", lambda *_, **__: pytest.fail("it is served"))
    words, error, hint = NOT_SERVED[case]
    if case in FILES:
        Path("w.json").write_text(FILES[case])
    ran = gp("demo", *words, "--world", "w.json")
    assert (ran.code, ran.out) == (2, "")
    said, advice = ran.err.splitlines()
    assert error in said
    assert hint in advice


def test_the_world_of_a_file_is_served(gp: Gp, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = list[World]()

    async def serve(port: int, *, world: World, on_ready: Callable[[int], None]) -> None:
        worlds.append(world)
        on_ready(port)

    monkeypatch.setattr(sim_server, "serve", serve)
    Path("w.json").write_text('{"seed": 3, "drift": -2, "fail": {"wrong": 0.1}}')
    assert gp("demo", "--serve", "8377", "--world", "w.json").code == 0
    assert gp("demo", "--serve", "8377").code == 0
    assert worlds == [World(seed=3, drift=-2.0, fail=Failing(wrong=0.1)), World()]


@pytest.mark.slow
def test_the_served_endpoint_answers_until_it_is_stopped() -> None:
    command = program("demo", "--serve", "0")
    env = {**os.environ, "NO_PROXY": "127.0.0.1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split(" answers at ")[1].split()[0]
        assert f"UTU_LLM_BASE_URL={url}" in server.stdout.readline()
        body = {"model": "sim", "messages": [{"role": "user", "content": "What is 2+2?"}]}
        request = urllib.request.Request(
            f"{url}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=HANG_S) as response:
            assert json.load(response)["choices"][0]["message"]["role"] == "assistant"
        server.send_signal(signal.SIGINT)
        told, _ = server.communicate(timeout=HANG_S)
    assert (server.returncode, told) == (0, "stopped\n")


def test_what_serves_keeps_nothing(gp: Gp) -> None:
    ran = gp("demo", "--serve", "0", "--keep", "d")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "error: --serve writes no files, so it cannot be used with --keep",
    )
    assert not Path("d").exists()
