"""A server that does not do as the protocol has it is said before anything is paid."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.core.errors import ConfigError, EndpointRefusedError
from grpo_practice.rollout.tools import ToolError
from tests.late import Late
from tests.processes import alive
from tests.rollout.tools.mcp.kits import ask, kit, opened, until

if TYPE_CHECKING:
    from grpo_practice.rollout.tools.mcp import listing, transport
else:
    listing = Late("grpo_practice.rollout.tools.mcp.listing")
    transport = Late("grpo_practice.rollout.tools.mcp.transport")

MCP = "grpo_practice.rollout.tools.mcp"


async def refused(toolkit: McpToolkit) -> str:
    with pytest.raises(ConfigError) as raised:
        async with opened(toolkit):
            pass
    return f"{raised.value} | {raised.value.hint}"


def test_names_that_endpoints_refuse_are_made_to_fit_the_same_way_each_time() -> None:
    fitting = listing.fitting
    assert fitting("näme/" + "x" * 80) != fitting("näme/" + "x" * 81)
    assert (fitting("fs.read"), fitting("")) == ("fs_read", "_")


async def test_a_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(f"{MCP}.connection.START_S", 4.0)
    hows = ("hangs", "garbage")
    hangs, garbage = await asyncio.gather(*(refused(kit(how, str(tmp_path / how))) for how in hows))
    assert "was not ready within 4 s" in hangs
    assert "lines to stdout that are not messages" in garbage
    for how in hows:
        assert not alive(int((tmp_path / how).read_text().split()[1]))


async def test_a_server_found_dead_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = transport.Notes()
    monkeypatch.setattr(f"{MCP}.connection.Notes", lambda: notes)
    async with opened(kit()) as tools:
        pid = int(await ask(tools["pid"]))
        monkeypatch.undo()
        os.kill(pid, 9)
        await until(lambda: notes.ended)
        assert int(await ask(tools["pid"])) != pid


async def test_a_server_that_cannot_be_started_again_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(f"{MCP}.server.WAITS_S", (0.0, 0.0))
    notes = tmp_path / "notes"
    async with opened(kit("useless", str(notes))) as tools:
        with pytest.raises(ToolError):
            await ask(tools["crash"])
        with pytest.raises(
            EndpointRefusedError, match=r"no longer usable: .*its stderr ends: no m"
        ):
            await ask(tools["say"])
    assert notes.read_text().count("start") == 3


async def test_a_call_that_is_cancelled_harms_no_other() -> None:
    async with opened(kit()) as tools:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(tools["sleep"], s=0.3)
        assert await ask(tools["say"]) == "ä"
