"""What an agent that reads the web learns, through a whole practice run."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.tools import PAGE_TOOLS
from tests.app.project import CONFIG, Project
from tests.tools.search.standins import JINA_KEY, SERPER_KEY, Standins, standins


def reading(project: Project, web: Standins) -> None:
    """Give the project's agent a search toolkit that asks the stand-ins."""
    config: dict[str, Any] = {"search_url": web.serper_url, "search_api_key": SERPER_KEY}
    config |= {"crawl_url": web.jina_reader_url, "crawl_api_key": JINA_KEY}
    kit = {"search": {"mode": "builtin", "config": config}}
    text = CONFIG.replace("  agent:\n", f"  agent:\n    toolkits: {json.dumps(kit)}\n")
    project.config.write_text(text)


@pytest.fixture
async def web(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standins]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with standins() as it:
        yield it


@pytest.mark.parametrize(("sites", "rules"), [(1, {"one_site"}), (5, {None})])
async def test_what_a_run_learns_rests_on_the_sites_that_its_tools_read(
    tmp_path: Path, web: Standins, sites: int, rules: set[str | None]
) -> None:
    many = web.results
    web.results = lambda query, n: many(query, min(n, sites))
    project = Project(tmp_path)
    reading(project, web)
    await project.practise("practice.epochs=1")
    found = project.query("SELECT rule, domains FROM operations WHERE slot < 0 AND op = 'ADD'")
    assert {rule for rule, _ in found} == rules
    assert {domain for _, domains in found for domain in json.loads(domains)} == {
        f"site{n}.example" for n in range(1, sites + 1)
    }


def test_the_tools_that_bring_pages_are_those_of_search_toolkits() -> None:
    def page_tools(**kits: Any) -> frozenset[str]:
        return AgentConfig.model_validate({"toolkits": kits}).page_tools

    mcp = {"mode": "mcp", "config": {"command": "a"}}
    search: dict[str, Any] = {"name": "search", "mode": "builtin"}
    assert page_tools(python_executor={"mode": "builtin"}, search=mcp) == set()
    assert page_tools(search=search) == set(PAGE_TOOLS)
    chosen = search | {"activated_tools": ["web_qa"]}
    assert page_tools(web=chosen, kit=mcp) == {"web_qa"}
