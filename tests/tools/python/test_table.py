"""What the sandbox table claims, cell by cell."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from grpo_practice.tools import Tool
from tests.tools.python.running import opened
from tests.tools.python.table import PROCESSES, Attack, attacks, struck, told

NAMES = (
    *("infinite loop", "1 GB allocation", "fork bomb", "read of `$HOME`", "network"),
    "500 MB output",
)
OPEN = {"read of `$HOME`", "network"} | ({"fork bomb"} if os.geteuid() == 0 else set())
"""What `subprocess` does not hold; the kernel limits no processes of root."""


@pytest.fixture(scope="module")
def made_ready() -> Iterator[dict[str, Attack]]:
    with attacks() as all_:
        yield {attack.name: attack for attack in all_}


@pytest.fixture(params=("monty", "bwrap", "subprocess"))
async def tool(request: pytest.FixtureRequest) -> AsyncIterator[Tool]:
    async with opened(request.param, timeout_s=20) as tool:
        yield tool


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_an_attack_is_held_where_the_table_says_so(
    name: str, tool: Tool, made_ready: dict[str, Attack]
) -> None:
    outcome = await struck(tool, made_ready[name])
    expected = not (tool.runs_in.startswith("subprocess") and name in OPEN)
    assert outcome.held is expected, outcome.said
    assert ("NOT HELD" in told(outcome)) is not expected
    assert len(outcome.said) < 16 * 1024


async def test_what_is_not_held_is_seen(made_ready: dict[str, Attack]) -> None:
    wrong = {
        "infinite loop": "42",
        "1 GB allocation": "allocated 125000000",
        "fork bomb": f"refused\n{PROCESSES + 1} made",
        "network": "reached",
        "500 MB output": "x" * 999,
    }
    assert not [name for name, text in wrong.items() if made_ready[name].held(text)]
    assert not made_ready["fork bomb"].held("200 made")
    assert made_ready["fork bomb"].held(f"refused\n{PROCESSES} made")
