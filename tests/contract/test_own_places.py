"""Programs of the user's own: where they run, what they keep of the prompt, and their key."""

import re
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.own import COMMAND, FUNCTION, ONCE, THREADS, Own, asking, keys
from tests.contract.project import served

DEAF = """
async def solve(question, system, context):
    return (await ask(context, user(question)))["content"]
"""
WRAPPED = """
import textwrap

async def solve(question, system, context):
    told = "\\n".join(textwrap.wrap(system, 30, initial_indent="> ", subsequent_indent="  "))
    return (await ask(context, user(told + question)))["content"]
"""
IGNORED = "no request of the first 3 rollouts with experiences contained any of them"


@pytest.fixture
def project(tmp_path: Path) -> Own:
    return Own(tmp_path)


@pytest.mark.long
async def test_practice_pauses_and_goes_on_if_the_agent_may_do_so(project: Own) -> None:
    deaf = (*project.practising(DEAF), "practice.rollout_concurrency=1")
    async with served() as endpoint:
        with pytest.raises(Exception, match=IGNORED) as paused:
            await project.practise(endpoint.override(), *deaf)
        assert "agent.ignores_system: true" in str(paused.value.hint)  # type: ignore[attr-defined]
        # The first step that is played with experiences, and three of its 18 rollouts.
        first = next(e.step for e in project.of_kind("StepStarted") if e.experiences)
        assert endpoint.by_stage["play"] == first * 18 + 3
        allowed = "evaluation.agent.ignores_system=true"
        report = await project.practise(endpoint.override(), *deaf, allowed)
        assert endpoint.by_stage["play"] == 4 * 18
    assert report.library.experiences


@pytest.mark.long
async def test_a_mended_agent_goes_on_with_the_command_of_the_hint(project: Own) -> None:
    deaf = (*project.practising(DEAF), "practice.rollout_concurrency=1")
    async with served() as endpoint:
        with pytest.raises(Exception, match=IGNORED) as paused:
            await project.practise(endpoint.override(), *deaf)
        first = next(e.step for e in project.of_kind("StepStarted") if e.experiences)
        assert f"--restart-step {first} if a file of the agent has changed" in str(
            paused.value.hint  # type: ignore[attr-defined]
        )
        mended = (*project.practising(WRAPPED), "practice.rollout_concurrency=1")
        await project.practise(endpoint.override(), *mended, restart_step=first)
        assert endpoint.by_stage["play"] == 4 * 18 + 3


async def test_an_evaluation_says_it_once(project: Own) -> None:
    await project.practise()
    await project.evaluate(*project.agent(DEAF), library="toy")
    assert sum(IGNORED in text for text in project.notices) == 1
    project.events.clear()
    await project.evaluate(*project.agent(DEAF), "exp_id=none")
    allowed = "agent.ignores_system=true"
    await project.evaluate(*project.agent(DEAF), allowed, "exp_id=allowed", library="toy")
    assert not any(IGNORED in text for text in project.notices)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("program", [ONCE, WRAPPED])
async def test_an_agent_that_sends_it_in_any_form_is_left_alone(project: Own, program: str) -> None:
    await project.practise()
    await project.evaluate(*project.agent(program), library="toy")
    assert not any(IGNORED in text for text in project.notices)


WAYS = {
    "workers": (*FUNCTION, "workers=3"),
}
MORE = {
    "commands at a fixed address": (*COMMAND, "concurrency=9", "proxy.host=localhost"),
    "one at a time": (*FUNCTION, "workers=3", "concurrency=1"),
    "commands": COMMAND,
}


@pytest.fixture
async def expected(tmp_path: Path) -> str:
    """Return the results of a run in threads."""
    made = asking(tmp_path / "threads")
    await made.practise(*keys(THREADS))
    return made.results()


@pytest.mark.parametrize("ways", [WAYS, pytest.param(MORE, marks=pytest.mark.long)])
async def test_the_results_are_the_same_wherever_they_run(
    tmp_path: Path, expected: str, ways: dict[str, tuple[str, ...]]
) -> None:
    for name, way in ways.items():
        made = asking(tmp_path / name)
        await made.practise(*keys(way))
        assert made.results() == expected, name


@pytest.mark.long
async def test_a_run_goes_on_elsewhere(tmp_path: Path, expected: str) -> None:
    made = asking(tmp_path / "both")
    with pytest.raises(Exception, match=r"40 requests|max.requests"):
        await made.practise(*keys(WAYS["workers"]), max_requests=40)
    await made.practise(*keys(THREADS))
    assert made.results() == expected


KEY = re.compile(rb"gp-rollout-[A-Za-z0-9_-]{43}")
TELLS = """
import json, sys
from urllib.request import Request, urlopen

def solve(question, system, context):
    known = f"{context.base_url} and {context.api_key}"
    messages = [{"role": "user", "content": f"{question} {context.api_key}"}]
    body = json.dumps({"messages": messages, "user": context.api_key}).encode()
    with urlopen(Request(context.base_url + "/chat/completions", body)) as reply:
        said = json.load(reply)["choices"][0]["message"]["content"]
    print(known, file=sys.stderr)
    if context.seed % 6 == 0:
        raise ValueError(f"404 for {known}")
    return f"{said} {known}"

if __name__ == "__main__":
    from types import SimpleNamespace
    given = json.load(sys.stdin)
    answer = solve(given["question"], given["system"], SimpleNamespace(**given))
    print(json.dumps({"answer": answer}))
"""


def values(path: Path) -> Iterator[bytes]:
    """Yield every value of every row, unpacked."""
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            for row in db.execute(f'SELECT * FROM "{name.decode()}"'):
                for value in row:
                    raw = value if isinstance(value, bytes) else str(value).encode()
                    yield zlib.decompress(raw) if raw[:2] == b"\x78\x01" else raw


@pytest.mark.long
@pytest.mark.parametrize("kind", ["workers", "threads", "command"])
async def test_it_is_kept_nowhere(tmp_path: Path, kind: str) -> None:
    project = Own(tmp_path)
    overrides = project.agent(TELLS)
    if kind == "command":
        overrides = ["agent.type=command", f"agent.command=[{sys.executable}, mine.py]"]
    elif kind == "threads":
        overrides.append("agent.workers=0")
    async with served() as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        report = await project.evaluate(*overrides, key)
    assert report.outcomes["ok"] >= 8
    assert report.outcomes["error.agent"] >= 1, "some told it in an error"
    kept = [KEY.search(value) for value in values(project.db)]
    assert len(kept) > 500
    assert not any(kept)
    assert not KEY.search(str([project.events, report]).encode())
    assert not KEY.search(str(endpoint.bodies).encode())
    # So that what was paid is found again, though the program told another key.
    async with served() as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        again = await project.evaluate(*overrides, key)
    assert again.requests.new == 0
