"""What an agent that reads the web learns, through a whole practice run."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.tools import PAGE_TOOLS
from grpo_practice.core.errors import ConfigError, PausedError
from tests.contract.project import CONFIG
from tests.contract.standins import JINA_KEY, SERPER_KEY, Standins, standins
from tests.run.project import Project


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


@pytest.mark.long
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


@pytest.fixture
def one_site(tmp_path: Path, web: Standins) -> Project:
    """A project whose agent reads pages of one site alone."""
    many = web.results
    web.results = lambda query, n: many(query, 1)
    project = Project(tmp_path)
    reading(project, web)
    return project


AT_ONCE = ("practice.epochs=1", "practice.batch_size=12", "practice.grpo_n=5")
"""One step, with more than 3 comparisons."""


@pytest.mark.long
async def test_an_agent_that_reads_one_site_goes_on_once_that_is_trusted(
    one_site: Project,
) -> None:
    with pytest.raises(PausedError, match=r"a single site: site1\.example") as paused:
        await one_site.practise(*AT_ONCE)
    assert "name the site in practice.trusted_sites if you trust it" in str(paused.value.hint)
    assert "it keeps the rollouts and keeps the comparisons" in str(paused.value.hint)
    report = await one_site.practise(*AT_ONCE, "practice.trusted_sites=[www.site1.example]")
    assert report.requests.new == 0
    assert report.library.experiences
    found = one_site.query("SELECT DISTINCT rule, domains FROM operations WHERE slot < 0")
    assert found == [(None, '["site1.example"]')]


@pytest.mark.long
async def test_a_person_may_decide_on_what_one_site_says(one_site: Project) -> None:
    report = await one_site.practise(*AT_ONCE, "practice.approve=true")
    assert report.held > 0
    reasons = one_site.query("SELECT DISTINCT rule, reason FROM operations WHERE slot < 0")
    alone = "it is based on pages of a single site: site1.example"
    assert reasons == [("held", f"held until a person approves it; {alone}")]


async def test_a_trusted_site_is_a_name(one_site: Project) -> None:
    with pytest.raises(ConfigError, match="should be only the name of a site"):
        await one_site.practise("practice.trusted_sites=[https://site1.example/x]")


def test_the_tools_that_bring_pages_are_those_of_search_toolkits() -> None:
    def page_tools(**kits: Any) -> frozenset[str]:
        return AgentConfig.model_validate({"toolkits": kits}).page_tools

    mcp = {"mode": "mcp", "config": {"command": "a"}}
    search: dict[str, Any] = {"name": "search", "mode": "builtin"}
    assert page_tools(python_executor={"mode": "builtin"}, search=mcp) == set()
    assert page_tools(search=search) == set(PAGE_TOOLS)
    chosen = search | {"activated_tools": ["web_qa"]}
    assert page_tools(web=chosen, kit=mcp) == {"web_qa"}
