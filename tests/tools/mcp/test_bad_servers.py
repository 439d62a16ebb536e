"""A server that does not do as the protocol has it is said before anything is paid."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.errors import ConfigError, EndpointRefusedError
from grpo_practice.tools import ToolError
from grpo_practice.tools.mcp import connection, server
from grpo_practice.tools.mcp.listing import fitting
from grpo_practice.tools.mcp.transport import Notes
from tests.tools.mcp.kits import alive, ask, kit, opened, until

QUICK: dict[str, Any] = {"mcp_client_session_timeout_seconds": 3.0}


async def refused(toolkit: McpToolkit) -> str:
    with pytest.raises(ConfigError) as raised:
        async with opened(toolkit):
            pass
    return f"{raised.value} | {raised.value.hint}"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("empty", "toolkits.kit: the MCP server has no tools"),
        ("twins", "'a.b' and 'a b' would both be called 'a_b' | leave it out with activated_tools"),
        ("huge", "the tool 'big' takes 70,057 bytes in every request | leave it out with"),
        ("endless", "it lists no end of tools"),
    ],
)
async def test_tools_that_cannot_be_used_are_an_error(how: str, said: str) -> None:
    assert said in await refused(kit(how))


@pytest.mark.parametrize(("how", "left"), [("twins", "c"), ("huge", "c")])
async def test_what_is_left_out_may_be_unfit(how: str, left: str) -> None:
    async with opened(kit(how, activated_tools=[left])) as tools:
        assert await ask(tools[left]) == left


async def test_names_that_endpoints_refuse_are_made_to_fit_the_same_way_each_time() -> None:
    async with opened(kit("pages")) as tools:  # two pages
        short, long = tools
        assert short == "c"
        assert long.startswith("n_me_xxx")
        assert len(long) == 64
        assert await ask(tools[long]) == "näme/" + "x" * 80
    assert fitting("näme/" + "x" * 80) == long
    assert fitting("näme/" + "x" * 81) != long
    assert fitting("fs.read") == "fs_read"
    assert fitting("") == "_"


async def test_a_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connection, "START_S", 4.0)
    hows = ("hangs", "garbage")
    hangs, garbage = await asyncio.gather(*(refused(kit(how, str(tmp_path / how))) for how in hows))
    assert "did not get ready in 4 s" in hangs
    assert "lines to stdout that are no messages" in garbage
    for how in hows:
        assert not alive(int((tmp_path / how).read_text().split()[1]))


async def test_a_dead_server_costs_one_call_and_is_started_again() -> None:
    async with opened(kit()) as tools:
        first = await ask(tools["pid"])
        with pytest.raises(ToolError, match="gave no answer"):
            await ask(tools["crash"])
        second = await ask(tools["pid"])
    assert first != second


async def test_a_server_found_dead_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setattr(connection, "Notes", lambda: notes)
    async with opened(kit()) as tools:
        pid = int(await ask(tools["pid"]))
        monkeypatch.undo()
        os.kill(pid, 9)
        await until(lambda: notes.ended)
        assert int(await ask(tools["pid"])) != pid


async def test_a_slow_call_is_left_and_its_server_is_used_for_no_other(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with opened(kit("well", str(notes), **QUICK)) as tools:
        first = int(await ask(tools["pid"]))
        found = await asyncio.gather(
            *(ask(tools["sleep"], s=20) for _ in range(3)), return_exceptions=True
        )
        assert {str(e) for e in found} == {"no answer within 3 s"}
        assert int(await ask(tools["pid"])) != first
    assert not alive(first)
    assert notes.read_text().count("start") == 2


async def test_an_answer_that_is_none_is_the_models_to_read() -> None:
    async with opened(kit()) as tools:
        with pytest.raises(ToolError, match="answered what cannot be used: 1 validation error"):
            await ask(tools["odd"])
        with pytest.raises(ToolError, match="no tools/call"):
            await ask(tools["refuse"])
        assert await ask(tools["say"]) == "ä"


async def test_a_server_that_cannot_be_started_again_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server, "WAITS_S", (0.0, 0.0))
    notes = tmp_path / "notes"
    async with opened(kit("useless", str(notes))) as tools:
        with pytest.raises(ToolError):
            await ask(tools["crash"])
        with pytest.raises(EndpointRefusedError, match=r"no use any more: .*its stderr ends: no m"):
            await ask(tools["say"])
    assert notes.read_text().count("start") == 3


async def test_a_server_that_dies_of_every_call_stops_the_run() -> None:
    async with opened(kit()) as tools:
        for _ in range(server.IN_A_ROW - 1):
            with pytest.raises(ToolError):
                await ask(tools["crash"])
        assert await ask(tools["say"]) == "ä"  # now it has answered, and counting begins anew
        for _ in range(server.IN_A_ROW):
            with pytest.raises(ToolError):
                await ask(tools["crash"])
        with pytest.raises(EndpointRefusedError, match="5 times in a row"):
            await ask(tools["crash"])


async def test_a_call_that_is_cancelled_harms_no_other() -> None:
    async with opened(kit()) as tools:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(tools["sleep"], s=0.3)
        assert await ask(tools["say"]) == "ä"


async def test_many_calls_meet_one_dead_server_and_one_new_one(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with opened(kit("well", str(notes))) as tools:
        await ask(tools["say"])
        found = await asyncio.gather(
            *(ask(tools["crash"]) for _ in range(20)), return_exceptions=True
        )
        assert all(isinstance(e, ToolError) for e in found)
        assert set(await asyncio.gather(*(ask(tools["say"]) for _ in range(20)))) == {"ä"}
    assert notes.read_text().count("start") == 2
