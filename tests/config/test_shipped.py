import json
from pathlib import Path

import pytest

from grpo_practice.config.reading.compose import packaged_configs
from grpo_practice.config.reading.discover import find_config, init_files
from grpo_practice.config.reading.env import read_environment
from grpo_practice.config.reading.load import load_eval, load_practice
from grpo_practice.config.reading.problems import keys_of
from grpo_practice.config.reading.yaml_reader import read_yaml
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.yaml_document import show
from grpo_practice.core.errors import ConfigError
from tests.config.files import ENV as MODEL_ENV
from tests.config.files import agent_in
from tests.config.reference import reference_markdown

KEYS = {"SERPER_API_KEY": "serper-000000", "JINA_API_KEY": "jina-00000000"}
ENV = {**MODEL_ENV, **KEYS}
CONFIGS = packaged_configs()
SIM = "agent.model.model_provider.model=sim"


@pytest.fixture(autouse=True)
def practised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with the agents that have practised, which `*_practice_*` configs evaluate."""
    agents = tmp_path / "configs/agents/practice"
    agents.mkdir(parents=True)
    for domain in ("math", "web"):
        text = (CONFIGS / f"agents/practice/{domain}_agent.yaml").read_text("utf-8")
        (agents / f"{domain}_practice_agent.yaml").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_file_loads(path: Path) -> None:
    match path.relative_to(CONFIGS).parts[0]:
        case "agents":
            agent_in(path, ENV)
        case "eval":
            assert load_eval(path, [], ENV).ignored == []
        case "model" | "tools":
            read_yaml(path)
        case _:
            assert load_practice(path, [], ENV).ignored == []
            assert load_practice(path, [f"evaluation.{SIM}"], ENV).config.practice.teacher_model
            assert load_eval(path, [SIM], KEYS).config.agent.model.model_provider.simulated


SERVED = {"UTU_LLM_BASE_URL": "http://127.0.0.1:9/v1", "UTU_LLM_API_KEY": "sk-shipped-00000000"}
PARTS = {"model", "tools", "agents"}
WHOLE = [p for p in sorted(CONFIGS.rglob("*.yaml")) if not PARTS & {*p.relative_to(CONFIGS).parts}]
"""The configurations that are no part of others."""


@pytest.mark.parametrize("model", ["sim", "m"])
@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.stem)
def test_what_config_show_prints_is_read_back(path: Path, model: str, tmp_path: Path) -> None:
    env = {**KEYS, **(SERVED if model == "m" else {}), "UTU_LLM_MODEL": model}
    load = load_eval if "eval" in path.relative_to(CONFIGS).parts else load_practice
    first = load(path, [], env)
    text = show(first.config, first.text)
    assert not [name for name in (*KEYS, "UTU_LLM_API_KEY") if env.get(name, " ") in text.split()]
    (tmp_path / "shown.yaml").write_text(text, "utf-8")
    again = load(tmp_path / "shown.yaml", [], env)
    assert (again.ignored, again.notices) == ([], first.notices)
    assert _plain(show(again.config, again.text)) == _plain(text)
    keys = {name: model.model_provider.key for name, model in first.config.models.items()}
    assert {n: m.model_provider.key for n, m in again.config.models.items()} == keys


def _plain(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.strip().startswith("#")]


def test_the_flat_file_is_the_composed_one_without_a_tool() -> None:
    flat = load_practice(CONFIGS / "math.yaml", [], ENV).config
    composed = load_practice(CONFIGS / "practice/math_reasoning.yaml", [], ENV).config
    plain = agent_in(CONFIGS / "agents/practice/math_agent_plain.yaml", ENV)
    assert flat.evaluation.agent.model_copy(update={"model": plain.model}) == plain
    assert flat.evaluation.agent.model.model_settings == plain.model.model_settings
    assert flat.data == composed.data
    assert flat.evaluation.verify == composed.evaluation.verify
    told = {"rollout_concurrency": 1, "agent_objective": "", "learning_objective": ""}
    assert flat.practice.model_copy(update=told) == composed.practice.model_copy(update=told)
    settings = flat.evaluation.agent.model.model_settings
    assert settings == composed.evaluation.agent.model.model_settings
    assert (settings.temperature, settings.top_p) == (0.3, 0.95)
    assert flat.practice.rollout_temperature == 0.7


@pytest.mark.parametrize(
    ("name", "toolkit", "turns", "data", "verify"),
    [
        ("math_reasoning", "python_executor", 50, ("DAPO-Math-17k", "AIME24"), "math"),
        ("web_search", "search", 20, ("AFM_web_RL", "WebWalkerQA"), "judge"),
    ],
)
def test_the_two_published_workflows(
    name: str, toolkit: str, turns: int, data: tuple[str, str], verify: str
) -> None:
    config = load_practice(find_config(name, "practice"), [], ENV).config
    agent = config.evaluation.agent
    assert [(k, kit.name) for k, kit in agent.toolkits.items()] == [(toolkit, toolkit)]
    assert agent.max_turns == turns
    assert (config.data.practice_dataset_name, config.evaluation.data.dataset) == data
    assert config.evaluation.verify.name == verify
    assert (config.practice.grpo_n, config.practice.rollout_data_truncate) == (5, 100)


@pytest.mark.parametrize("exp_id", ["first", "true", "1.5", "010"])
def test_what_init_writes_loads_without_a_change(tmp_path: Path, exp_id: str) -> None:
    for name, text in init_files(exp_id).items():
        (tmp_path / name).write_text(text, "utf-8")
    config = tmp_path / "practice.yaml"
    (tmp_path / ".env").write_text(
        (tmp_path / ".env.example").read_text("utf-8").replace("MODEL=\n", "MODEL=sim\n", 1),
        "utf-8",
    )
    env = read_environment({}, tmp_path)
    loaded = load_practice(config, [], env)
    assert loaded.config.exp_id == exp_id
    assert loaded.config.evaluation.agent.model.model_provider.simulated
    assert load_eval(config, [], env).config.data.dataset == "mine-test"
    rows = [json.loads(line) for line in init_files(exp_id)["mine.jsonl"].splitlines()]
    assert len(rows) == 120
    assert all(row["question"] and row["answer"] for row in rows)


def test_an_unfilled_template_says_what_to_fill_in(tmp_path: Path) -> None:
    config = tmp_path / "practice.yaml"
    config.write_text(init_files("x")["practice.yaml"], "utf-8")
    with pytest.raises(ConfigError, match="no model is named") as e:
        load_practice(config, [], {"UTU_LLM_MODEL": "", "UTU_LLM_BASE_URL": ""})
    assert "UTU_LLM_MODEL" in (e.value.hint or "")


@pytest.mark.parametrize("name", ["a b", "", "../x", "x\n"])
def test_init_refuses_a_name_no_experiment_can_have(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of an experiment"):
        init_files(name)


def test_the_reference_has_every_key_with_its_meaning() -> None:
    rows = [line.split(" | ") for line in reference_markdown().splitlines()[2:]]
    assert all(len(row) == 4 and row[3].strip(" |") for row in rows)
    listed = {row[0].strip("| `") for row in rows}
    single = {"practice.teacher_model", "evaluation.judge_model", "evaluation.verify",
              "evaluation.agent.model.model_settings.reasoning"}  # fmt: skip
    expected = {
        next((s for s in single if key.startswith(f"{s}.")), key)
        for key in keys_of(PracticeConfig)
        if not key.endswith(("section", "origin", "key_origin"))
    }
    of_tools = {key for key in listed if key.startswith("evaluation.agent.toolkits.")}
    assert listed - of_tools == expected
    assert "evaluation.agent.toolkits.search.config.crawl_engine" in of_tools
    assert "| `practice.epochs` | whole number | `3` | Passes over the practice data. |" in (
        reference_markdown()
    )
