"""The limit of open files is raised to what the connections need, or said to be too low."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.open_files import OTHERS, Descriptors
from tests.fakes import FakeEndpoint, answers
from tests.processes import HANG_S


@pytest.fixture
def soft() -> Iterator[int]:
    """A soft limit that is too low for a thousand connections; put back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = 600
    assert before[1] == resource.RLIM_INFINITY or before[1] > 4 * low
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, before[1]))
    yield low
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_connections_raise_the_soft_limit_to_what_they_need_together(soft: int) -> None:
    files = Descriptors()
    files.take(soft - OTHERS)
    assert limit() == soft
    files.take(400)
    assert limit() == soft + 400
    files.give(400)
    files.take(300)
    assert limit() == soft + 400


async def test_a_client_has_room_for_all_its_connections(soft: int) -> None:
    url = "http://127.0.0.1:9/v1"
    async with Client(Endpoint(url), Limit(1_000), notice=print):
        assert limit() >= 1_000 + OTHERS > soft
        async with Client(Endpoint(url), Limit(500), notice=print):
            assert limit() >= 1_500 + OTHERS
    async with Client(Endpoint(url), Limit(1_000), notice=print):
        assert limit() < 2_000 + OTHERS


async def test_answers_without_a_network_need_no_files(soft: int) -> None:
    server = FakeEndpoint(answers("x"))
    endpoint = Endpoint("http://127.0.0.1:9/v1")
    async with Client(endpoint, Limit(5_000), notice=print, transport=server.transport):
        assert limit() == soft


SCRIPT = """
import asyncio, json, os, resource, sys
from grpo_practice.core.errors import ConfigError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint

async def main(wanted, got, said):
    clients = []
    for n in wanted:
        limit = Limit(n)
        endpoint = Endpoint("http://127.0.0.1:9/v1")
        try:
            clients.append(Client(endpoint, limit, notice=said.append))
            got.append(limit.n)
            assert limit.window <= limit.n
        except ConfigError as e:
            got.append(f"{e} | {e.hint}")
    for client in clients:
        await client.__aexit__()

def ask(files, *wanted):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    got, said = [], []
    asyncio.run(main(wanted, got, said))
    print(json.dumps([got, said]), flush=True)

for one in json.loads(sys.argv[1]):
    if not (process := os.fork()):
        ask(*one)
        sys.exit()
    if os.waitpid(process, 0)[1]:
        sys.exit("it failed")
"""
CASES = [(256, 1), (64, 1, 1, 1), (256, 100, 64), (1024, 1024 - OTHERS, 64), (32, *[64] * 6)]


@cache
def _asked() -> list[tuple[list[Any], list[str]]]:
    """Ask for all cases, each in a process of its own that has imported what it needs."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    return [json.loads(line) for line in done.stdout.splitlines()]


def allowed(files: int, *wanted: int) -> tuple[list[Any], list[str]]:
    """What clients get in a process that may have so many files, and what is said."""
    got, said = _asked()[CASES.index((files, *wanted))]
    return got, said


@pytest.mark.long
def test_one_request_fits_into_256_files_and_nothing_is_said() -> None:
    assert allowed(256, 1) == ([1], [])
    assert allowed(64, 1, 1, 1) == ([1, 1, 1], [])


@pytest.mark.long
def test_concurrency_is_lowered_to_what_the_system_lets_and_said_once() -> None:
    got, said = allowed(256, 100, 64)
    assert got == [80, 40]
    assert said == [
        f"{n} concurrent requests to 127.0.0.1 instead of {m}: this system allows a process 256"
        " open files (`ulimit -Hn`)"
        for n, m in ((80, 100), (40, 64))
    ]


@pytest.mark.long
def test_who_comes_when_the_files_are_given_out_still_gets_some() -> None:
    got, _ = allowed(1024, 1024 - OTHERS, 64)
    assert got == [1024 - OTHERS, 64]


@pytest.mark.long
def test_only_where_not_one_request_fits_is_it_an_error() -> None:
    (*fit, refused), _ = allowed(32, *[64] * 6)
    assert fit == [8, 4, 2, 1, 1]
    assert "this system allows a process 32 open files" in refused
    assert "ulimit -n" in refused


def test_what_was_not_allowed_is_not_counted(soft: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system has no hard limit")
    files = Descriptors()
    files.give(files.take(hard))
    assert files.take(soft) == soft
