"""The fault server does what its actions say: a fake that is kinder than the world hides faults."""

import asyncio
import json
import subprocess
import sys

import pytest

from tests.contract.endpoint.actions import (
    RESET,
    Action,
    always,
    cut,
    drip,
    error,
    hang_up,
    in_turn,
    ok,
    reset,
    simulated,
    sse,
    stall,
)
from tests.contract.endpoint.scripts import SCRIPTS
from tests.contract.endpoint.server import ROOT, FaultProcess, FaultServer, named
from tests.processes import HANG_S

BODY = json.dumps({"model": "m", "seed": 7, "messages": [{"role": "user", "content": "hi"}]})
REQUEST = (
    f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
).encode()


async def talk(server: FaultServer, say: bytes = REQUEST) -> bytes:
    """All that comes back for it, until the server closes or resets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(say)
        async with asyncio.timeout(HANG_S):
            return await reader.read()
    finally:
        writer.close()


async def test_a_cut_answer_ends_in_the_body_and_a_reset_one_with_an_error() -> None:
    async with FaultServer(in_turn(cut(ok("24"), 10), reset(ok("24"), 10))) as server:
        head, _, body = (await talk(server)).partition(b"\r\n\r\n")
        assert b"Content-Length" in head
        assert len(body) == 10
        with pytest.raises(ConnectionResetError):
            await talk(server)
    assert [(a.said, a.finished) for a in server.asked] == [("cut", True), ("reset", True)]


@pytest.mark.parametrize("action", [stall(), stall(ok("24"), 5), drip(b"\n", interval_s=0.01)])
async def test_some_answers_never_end(action: Action) -> None:
    async with FaultServer(always(action)) as server:
        talking = asyncio.create_task(talk(server))
        await server.was_asked(1)
        assert not (await asyncio.wait([talking], timeout=0.1))[0]
        talking.cancel()
    assert [a.finished for a in server.asked] == [False]


async def test_what_is_greeted_is_not_asked() -> None:
    greetings = iter((b"", b"220 mail\r\n", RESET))
    async with FaultServer(always(ok("24")), greet=lambda _: next(greetings)) as server:
        assert await talk(server, b"") == b""
        assert await talk(server, b"") == b"220 mail\r\n"
        with pytest.raises(ConnectionResetError):
            await talk(server, b"")
    assert (server.asked, server.connections) == ([], 3)


async def test_events_come_in_the_pieces_it_was_told() -> None:
    async with FaultServer(always(sse({"a": "é"}, ": x", pieces=1))) as server:
        body = (await talk(server)).partition(b"\r\n\r\n")[2]
    assert body == b'data: {"a": "\\u00e9"}\n\n: x\n\ndata: [DONE]\n\n'


async def test_it_counts_what_it_was_asked_and_what_it_said() -> None:
    async with FaultServer(in_turn(hang_up(), cut(simulated(), 20))) as server:
        for _ in range(2):
            await talk(server)
        stats, rows = server.stats(), server.rows()
    assert stats["by_answer"] == stats["finished"] == {"hang_up": 1, "cut": 1}
    assert (stats["requests"], stats["by_stage"], stats["connections"]) == (2, {"play": 2}, 2)
    assert [(row["n"], row["seed"], row["said"]) for row in rows] == [
        (1, 7, "hang_up"),
        (2, 7, "cut"),
    ]
    assert rows[0]["hash"] == rows[1]["hash"] != ""


def test_a_process_of_its_own_counts_too_and_ends_with_its_parent() -> None:
    with FaultProcess("captive", port=0) as server:
        assert server.stats()["requests"] == 0
        assert server.rows() == []
    words = [sys.executable, "-m", "tests.contract.endpoint.server", "--script", "good"]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert int(process.stdout.readline()) > 0
        process.stdin.close()
        assert process.wait(timeout=HANG_S) == 0


def a_script(seed: int) -> object:
    return always(error(500 + seed, "mine"))


def test_scripts_are_found_by_name_and_by_path() -> None:
    for name in SCRIPTS:
        assert callable(named(name, 0))
    mine = named("tests.contract.test_endpoint:a_script", 3)
    assert mine(None).name == "503"  # type: ignore[arg-type]
