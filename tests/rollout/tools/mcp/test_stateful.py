"""`stateful: true`: a server for each rollout, and its stored calls made again on resume."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.core.errors import AgentError
from tests.processes import alive
from tests.rollout.tools.fakes import SCOPE, FakeLedger, box
from tests.rollout.tools.mcp.kits import kit, opened

OTHER = replace(SCOPE, address=replace(SCOPE.address, attempt=1))


def pids(notes: Path, what: str) -> list[int]:
    lines = [line.split() for line in notes.read_text().splitlines()]
    return [int(pid) for name, pid in lines if name == what]


async def test_each_rollout_has_a_server_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with opened(kit("well", str(notes), stateful=True)) as tools:
        (lister,) = pids(notes, "start")
        assert not alive(lister)
        all_of = box(*tools.values(), ledger=FakeLedger())
        async with all_of.open(SCOPE) as mine, all_of.open(OTHER) as other:
            counts = [await at("count", '{"n": 2}') for at in (mine, mine, other)]
            assert [c.text for c in counts] == ["2", "4", "2"]
            both = [int((await at("pid", "{}")).text) for at in (mine, other)]
            assert both[0] != both[1]
            assert all(map(alive, both))
        assert not any(map(alive, both))


async def test_a_server_that_dies_takes_the_rollout_with_it_and_no_other() -> None:
    ledger = FakeLedger()
    async with opened(kit(stateful=True)) as tools:
        all_of = box(*tools.values(), ledger=ledger)
        async with all_of.open(SCOPE) as mine, all_of.open(OTHER) as other:
            await asyncio.gather(mine("count", '{"n": 1}'), other("count", '{"n": 1}'))
            with pytest.raises(
                AgentError, match=r"toolkits\.kit: .* this rollout's state there is lost"
            ):
                await mine("crash", "{}")
            assert (await other("count", '{"n": 1}')).text == "2"
    assert "crash" not in {entry.name for entry in ledger.entries}  # so it is tried again


async def test_a_server_that_cannot_start_for_a_rollout_is_an_error_of_it(tmp_path: Path) -> None:
    toolkit = kit("useless", str(tmp_path / "notes"), stateful=True)
    async with (
        opened(toolkit) as tools,
        box(*tools.values(), ledger=FakeLedger()).open(SCOPE) as at,
    ):
        with pytest.raises(AgentError, match="its stderr ends: no more"):
            await at("say", "{}")


async def test_tools_of_one_server_share_its_state() -> None:
    async with opened(kit(stateful=True)) as tools:
        sessions: set[object] = {tool.session for tool in tools.values()}
    assert len(sessions) == 1
    assert None not in sessions
