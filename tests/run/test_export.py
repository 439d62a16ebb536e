"""The exported agent is the one on record, told differ from those what it was told."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config import load_eval
from grpo_practice.config.identity import identity_of
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.core.types import Experience, Library
from grpo_practice.run import agent_export
from grpo_practice.store import Store
from grpo_practice.store.run_names import eval_name, library_variant
from tests.config.files import agent_in
from tests.reports.rendered import export_agent, render
from tests.reports.sample import AGENT
from tests.run.project import Project
from tests.run.recorded import INSTRUCTIONS, Recorded


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with Store(tmp_path / "s.db") as store:
        yield Recorded(store)


def document(store: Store, ref: str | None = None, step: str = "last") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(export_agent(store, ref, step, "json"))
    return found


async def test_the_file_loads_as_the_agent_that_practised(
    recorded: Recorded, tmp_path: Path
) -> None:
    made = await recorded.practised("First: look.", "Then: leap.")
    path = tmp_path / "agent.yaml"
    path.write_text(export_agent(recorded.store, None, "last", "yaml"), "utf-8")
    config = agent_in(path, {"OPENAI_API_KEY": "key"})
    assert config.agent.instructions == system_prompt(INSTRUCTIONS, made[-1])
    assert config.agent.name == "solver"
    assert config.model.model_provider.model == "model-a"
    settings = config.model.model_settings.given()
    assert settings == {
        "temperature": 0.3,
        "extra_args": {"timeout": 3000},
        "extra_body": {"top_k": 40, "nested": {}},
    }


async def test_no_secret_leaves_with_it_and_a_plain_address_does(recorded: Recorded) -> None:
    await recorded.practised("a")
    for format in ("yaml", "md", "json"):
        text = export_agent(recorded.store, "m", "last", format)
        assert not [s for s in ("very-secret", "***", "red-team") if s in text]
        assert "http://h/v1" in text.replace("\\", "")
    left_out = document(recorded.store)["provenance"]["left_out"]
    assert left_out == ["model_settings.extra_body.nested.token"]


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('base_url: "http://h/v1/"', "http://h/v1/"),
        ("base_url: '${oc.env:WHERE}'", None),
        ("base_url: 'http://${oc.env:HOST}/v1'", None),
        ("base_url: 'http://user:s3cret-word@h/v1'", None),
        ("base_url: 'http://h/v1?key=s3cret-word'", None),
    ],
)
async def test_an_address_leaves_as_it_is_written_or_not_at_all(
    recorded: Recorded, tmp_path: Path, written: str, kept: str | None
) -> None:
    recorded.config = recorded.config.replace('base_url: "http://h/v1"', written)
    recorded.env |= {"WHERE": "http://told.example/v1", "HOST": "told.example"}
    await recorded.practised("a")
    texts = {f: export_agent(recorded.store, "m", "last", f) for f in ("yaml", "md", "json")}
    for text in texts.values():
        assert not [s for s in ("s3cret-word", "***", "told.example", "oc.env:WHERE") if s in text]
        assert ("http://h/v1" in text) is bool(kept)
    assert json.loads(texts["json"])["model"]["base_url"] == kept
    path = tmp_path / "agent.yaml"
    path.write_text(texts["yaml"], "utf-8")
    here = {"UTU_LLM_BASE_URL": "http://here/v1", "UTU_LLM_API_KEY": "key"}
    loaded = agent_in(path, here).model.model_provider
    assert loaded.base_url == ("http://h/v1" if kept else "http://here/v1")
    assert (loaded.key is None) == bool(kept)  # a key of another host is not sent there


async def test_the_variable_of_a_key_leaves_beside_its_address_only(recorded: Recorded) -> None:
    key = "api_key: '${oc.env:DEEP_KEY}'"
    recorded.config = recorded.config.replace("api_key: very-secret", key)
    recorded.env["DEEP_KEY"] = "sk-deep-12345678"
    await recorded.practised("a")
    text = export_agent(recorded.store, "m", "last", "yaml")
    assert "${oc.env:DEEP_KEY}" in text
    assert "sk-deep-12345678" not in text
    recorded.config = recorded.config.replace(
        'base_url: "http://h/v1"', "base_url: '${oc.env:WHERE}'"
    )
    recorded.env["WHERE"] = "http://told.example/v1"
    await recorded.practised("a", exp_id="n")
    assert "DEEP_KEY" not in export_agent(recorded.store, "n", "last", "yaml")


async def test_the_step_decides_what_it_has_learnt(recorded: Recorded) -> None:
    store = recorded.store
    a, ab = await recorded.practised("a", "b")
    await recorded.selected(Library(), [0.0, 0.0])
    await recorded.selected(a, [1.0, 0.0])
    await recorded.selected(ab, [0.0, 0.0])

    def learnt(step: str, ref: str = "m") -> list[str]:
        return [e["text"] for e in document(store, ref, step)["experiences"]]

    assert [learnt(step) for step in ("last", "best", "0", "1")] == [
        ["a", "b"],
        *[["a"]] * 2,
        ["a", "b"],
    ]
    assert learnt("last", "m:0") == learnt("last", f"L{a.id}") == ["a"]
    assert document(store, "m", "best")["provenance"]["step"] == 0


async def test_scores_are_those_of_this_very_agent(recorded: Recorded) -> None:
    store = recorded.store
    a, ab = await recorded.practised("a", "b")
    assert (document(store)["before"], document(store)["after"]) == (None, None)
    await recorded.evaluated("m/eval", [0.0, 1.0])
    await recorded.evaluated(eval_name("m", library_variant(ab)), [1.0, 1.0], library=ab)
    exported = document(store)
    assert (exported["before"]["mean"], exported["after"]["mean"]) == (0.5, 1.0)
    assert exported["after"]["dataset"] == "test"
    assert document(store, f"L{a.id}")["after"] is None
    recorded.env["UTU_LLM_MODEL"] = "model-b"
    other = recorded.begin(steps=1, restart_step=0)
    await recorded.close(other, 0)
    assert document(store)["model"]["name"] == "model-b"
    assert document(store)["before"] is None


async def test_a_kept_step_is_exported_with_the_agent_that_played_it(recorded: Recorded) -> None:
    await recorded.practised("a", "b")
    recorded.config = recorded.config.replace("Solve it.", "Now solve it.")
    second = recorded.begin(steps=2, restart_step=1)
    told = INSTRUCTIONS.replace("Solve it.", "Now solve it.")
    await recorded.close(second, 1, instructions=told)
    assert document(recorded.store, "m", "0")["instructions"] == INSTRUCTIONS
    assert document(recorded.store, "m", "1")["instructions"] == told


async def test_instructions_that_are_not_what_was_told_are_not_exported(
    recorded: Recorded,
) -> None:
    branch = recorded.begin(steps=1)
    await recorded.close(branch, 0, instructions=INSTRUCTIONS + " ")
    with pytest.raises(ConfigError, match="differ from those"):
        export_agent(recorded.store, "m", "last", "yaml")


async def test_a_simulated_run_says_so_in_every_format(recorded: Recorded) -> None:
    await recorded.close(recorded.begin("s", steps=1, simulated=True), 0)
    assert document(recorded.store, "s")["provenance"]["simulated"] is True
    for format in ("yaml", "md"):
        assert "SIMULATED" in export_agent(recorded.store, "s", "last", format)


async def test_an_imported_library_is_exported_under_its_labels(recorded: Recorded) -> None:
    branch = recorded.begin("n", steps=1, start=Library((Experience(5, "kept"),), 6))
    await recorded.close(branch, 0)
    assert document(recorded.store, "n")["experiences"] == [{"id": "E5", "text": "kept"}]


async def test_an_evaluation_of_the_file_asks_what_was_measured_in_the_run(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    await project.practise("practice.do_eval=true")
    with Store(project.db) as store:
        text = export_agent(store, None, "last", "yaml")
        in_run = document(store)["after"]["run"]
    file = tmp_path / "better.yaml"
    file.write_text(text, "utf-8")
    again = await project.evaluate(agent=file)
    prompts = project.query(
        """SELECT DISTINCT system_sha FROM rollouts JOIN branches USING (branch_id)
            WHERE run_id IN (?, ?)""",
        again.run,
        in_run,
    )
    assert again.run == "toy/eval/better"
    assert len(prompts) == 1


@pytest.mark.long
async def test_the_score_of_the_exported_agent_is_the_score_after(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate()
    plain = await project.practise()
    assert plain.after is None
    agent = tmp_path / "enhanced.yaml"
    with Store(project.db) as store:
        agent.write_text(export_agent(store, "toy", "last", "yaml"), "utf-8")
    scored = await project.evaluate(agent=agent)
    report = await project.practise()
    assert report.before is not None
    assert report.after is not None
    assert (report.after.run, report.after.score) == ("toy/eval/enhanced", scored.score)
    hotter = "evaluation.agent.model.model_settings.temperature=0.9"
    other = await project.practise(hotter, restart_step=0)
    assert other.before is None  # another agent's score is not this one's
    assert other.after is None


TOOLKITS = """
toolkits:
  python_executor:
    config: {backend: bwrap, memory_mb: 256}
    activated_tools: [execute_python_code]
  search:
    config: {search_engine: jina, crawl_engine: local, search_banned_sites: [a.example]}
    config_llm: {model_provider: {model: reader, base_url: http://r/v1, api_key: sk-not-told}}
  files: {mode: mcp, stateful: true, config: {command: tool, args: [-x], env: {K: hidden-value}}}
stop_at_tool_names: [done]
"""


@pytest.mark.parametrize(
    "agent",
    [TOOLKITS, "type: python\nfunction: solve.py:solve", "type: command\ncommand: [node, a.js]"],
)
def test_tools_and_programs_leave_with_the_agent_and_no_secret_does(
    tmp_path: Path, agent: str
) -> None:
    env = {"UTU_LLM_BASE_URL": "http://h/v1", "UTU_LLM_API_KEY": "key", "JINA_API_KEY": "j" * 20}
    model = "model: {model_provider: {model: m}}\n"
    (tmp_path / "a.yaml").write_text(model + agent)
    (tmp_path / "e.yaml").write_text(
        "defaults: [/a@agent, _self_]\nverify: math\ndata: {dataset: d}"
    )
    before = load_eval(tmp_path / "e.yaml", [], env).config
    identity = {f"evaluation.{key}": value for key, value in identity_of(before).items()}
    config = AgentConfig.model_validate(agent_export._nested(identity))
    exported = replace(
        AGENT,
        toolkits={name: agent_export._toolkit(kit) for name, kit in config.toolkits.items()},
        more=agent_export._more(config),
    )
    text = render(exported, "yaml")
    assert "hidden-value" not in text
    assert "sk-not-told" not in text
    (tmp_path / "a.yaml").write_text(text)
    after = load_eval(tmp_path / "e.yaml", [], env).config
    same = {key for key in identity_of(before) if key.startswith("agent.")} - {
        key for key in identity_of(before) if ".model" in key or ".agent." in key
    }
    assert {k: identity_of(after)[k] for k in same} == {k: identity_of(before)[k] for k in same}
