from pathlib import Path

import pytest

from grpo_practice.config.reading.env import Environment
from grpo_practice.config.reading.load import (
    load_eval,
    load_practice,
)
from grpo_practice.core.errors import ConfigError
from tests.config.files import (
    ENV,
    EVAL,
    MODEL_BASE,
    PRACTICE,
    agent_in,
    stored_eval,
    stored_practice,
    write,
)

REFERENCE = {
    "configs/practice/math.yaml": """
# @package _global_
defaults:
  - /eval/math/one@evaluation
  - _self_
exp_id: "math_practice"
practice:
  epochs: 3
  rollout_data_truncate: 100
  restart_step: null
data:
  practice_dataset_name: "Problems-17k"
""",
    "configs/eval/math/one.yaml": """
# @package _global_
defaults:
  - /agents/practice/solver@agent
  - /model/base@judge_model
  - _self_
exp_id: "one_eval"
data:
  dataset: "One"
  type: "single"
  question_field: "question"
  gt_field: "answer"
db_url: ${oc.env:UTU_DB_URL}
concurrency: 64
pass_k: 32
judge_concurrency: 64
verify_filename: "math.py"
verify_func_name: "verify_func"
""",
    "configs/agents/practice/solver.yaml": r"""
# @package _global_
defaults:
  - /model/base@model
  - _self_
agent:
  name: solver
  instructions: |-
    Answer in \\boxed{{…}} and never write ${.
model:
  model_settings: {temperature: 0.3, top_p: 0.95, extra_args: {timeout: 3000}}
  termination_max_tokens: 1000
max_turns: 20
planner_config: {}
""",
    "configs/model/base.yaml": MODEL_BASE,
}


def test_a_composed_config_of_the_published_schema_loads_as_it_is(tmp_path: Path) -> None:
    loaded = load_practice(write(tmp_path, REFERENCE), [], ENV)
    config = loaded.config
    assert (config.exp_id, config.evaluation.exp_id) == ("math_practice", "one_eval")
    assert (config.practice.epochs, config.practice.batch_size) == (3, 64)
    assert config.evaluation.verify.name == "math"
    assert config.evaluation.judge_model is None
    agent = config.evaluation.agent
    assert agent.agent.instructions == r"Answer in \\boxed{{…}} and never write ${."
    assert (agent.max_turns, agent.model.model_provider.model) == (20, "student-1")
    assert agent.model.model_settings.extra_args == {"timeout": 3000}
    assert {text.split(" ")[0] for text in loaded.ignored} == {
        "evaluation.db_url",
        "evaluation.data.question_field",
        "evaluation.data.gt_field",
        "evaluation.agent.planner_config",
        "evaluation.agent.model.termination_max_tokens",
        "judge_model",
    }


def test_an_evaluation_takes_its_part_of_a_practice_config(tmp_path: Path) -> None:
    path = write(tmp_path, REFERENCE)
    whole = load_practice(path, [], ENV).config
    part = load_eval(path, [], ENV).config
    assert part.exp_id == "one_eval"
    assert part.model_copy(update={"agent": whole.evaluation.agent}) == whole.evaluation
    alone = load_eval(tmp_path / "configs/eval/math/one.yaml", [], ENV).config
    assert alone.model_copy(update={"agent": part.agent}) == part


def test_an_evaluation_has_the_name_of_the_practice_around_it(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE})
    assert load_eval(path, ["data.dataset=D"], {}).config.exp_id == "p"
    assert load_practice(path, [], {}).config.evaluation.exp_id == "p"
    assert load_eval(path, ["data.dataset=D", "exp_id=q"], {}).config.exp_id == "q"


@pytest.mark.parametrize(("dataset", "exp_id"), [("D", "D"), ("sub/rows.jsonl", "rows")])
def test_an_evaluation_needs_no_file(dataset: str, exp_id: str) -> None:
    flags = ["agent.model.model_provider.model=sim", f"data.dataset={dataset}", "verify=math"]
    loaded = load_eval(None, flags, {})
    assert (loaded.config.exp_id, loaded.path) == (exp_id, None)
    assert loaded.config.agent.model.model_provider.simulated


def test_an_evaluation_override_may_name_the_section_or_not(tmp_path: Path) -> None:
    for files in ({"p.yaml": PRACTICE}, {"e.yaml": EVAL}):
        path = write(tmp_path, files)
        loaded = load_eval(path, ["data.dataset=D", "evaluation.pass_k=4", "concurrency=2"], {})
        assert (loaded.config.pass_k, loaded.config.concurrency) == (4, 2)


def test_an_agent_in_a_file_of_its_own_is_laid_over_the_configs(tmp_path: Path) -> None:
    path = write(tmp_path, {"e.yaml": EVAL, "a.yaml": "agent: {name: other}\nmax_turns: 3\n"})
    loaded = load_eval(path, ["agent.max_turns=4"], {}, agent=tmp_path / "a.yaml")
    assert (loaded.config.agent.agent.name, loaded.config.agent.max_turns) == ("other", 4)
    assert loaded.config.agent.model.model_provider.simulated
    again = stored_eval(loaded.text, tmp_path, {})
    assert again.config == loaded.config
    laid = stored_eval(load_eval(path, [], {}).text, tmp_path, {}, agent=tmp_path / "a.yaml")
    assert laid.config.agent.agent.name == "other"


def test_only_the_keys_that_are_used_are_filled_in(tmp_path: Path) -> None:
    text = (
        PRACTICE
        + "  data: {dataset: D}\npractice: {agent_objective: '${', prompts_dir: '${oc.env:NO}'}"
    )
    path = write(tmp_path, {"p.yaml": text})
    assert load_eval(path, [], {}).config.data.dataset == "D"
    with pytest.raises(ConfigError, match=r"practice\.prompts_dir.*variable NO is not set"):
        load_practice(path, [], {})


def test_an_evaluation_config_is_not_a_practice_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"e\.yaml is an evaluation config"):
        load_practice(write(tmp_path, {"e.yaml": EVAL}), [], {})


def test_all_problems_are_told_at_once_with_file_line_key_value_and_way_out(tmp_path: Path) -> None:
    text = PRACTICE + (
        "practice:\n"
        "  grop_n: 5\n"
        "  epochs: 010\n"
        "  shuffle_data: no\n"
        "  max_failed_share: 2\n"
        "  task_timeout: 12:30\n"
        "grpo_n: 4\n"
    )
    path = write(tmp_path, {"p.yaml": text})
    with pytest.raises(ConfigError) as e:
        load_practice(path, ["evaluation.pass_k=1e3", "evaluation.agent.type=workforce"], {})
    said = str(e.value)
    for line in (
        f"8 problems in {path}:",
        f"{path}:8: practice.grop_n = 5: unknown key (did you mean grpo_n?)",
        f"{path}:9: practice.epochs = '010': should be a valid integer (write 10)",
        f"{path}:10: practice.shuffle_data = 'no': should be a valid boolean (write false)",
        f"{path}:11: practice.max_failed_share = 2: should be less than or equal to 1",
        f"{path}:12: practice.task_timeout = '12:30': should be a valid number",
        f"{path}:13: grpo_n = 4: unknown key (did you mean practice.grpo_n?)",
        "--set evaluation.pass_k: evaluation.pass_k = '1e3': should be a valid integer (write 1000",
        "evaluation.agent.type = 'workforce': multi-agent setups",
    ):
        assert line in said


def test_a_key_shows_as_the_file_has_it_when_only_a_part_is_loaded(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE + "  pass_k: 0\n  data: {dataset: D}"})
    with pytest.raises(ConfigError, match=rf"{path}:7: evaluation\.pass_k = 0: should be greater"):
        load_eval(path, [], {})


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": "exp_id: p\nevaluation: {agent: {}}\n"})
    with pytest.raises(ConfigError) as e:
        load_practice(path, [], ENV)
    assert "data: is missing" in str(e.value)
    assert "evaluation.verify: is missing" in str(e.value)
    with pytest.raises(ConfigError, match=r"data\.dataset: is missing"):
        load_eval(None, ["verify=math"], ENV)


@pytest.mark.parametrize(
    "name",
    ["../../etc/x", "a/b", ".", "..", "x\\0y", "a" * 101, "-x", "é", "a\u202eb", "a b",
     "a'; DROP TABLE runs;--", "", "x\n"],
)  # fmt: skip
def test_names_of_experiments_and_datasets_are_plain(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, {"e.yaml": EVAL})
    for key in ("exp_id", "data.dataset"):
        with pytest.raises(ConfigError, match=r"1 to 100|is missing|at least"):
            load_eval(path, [f"{key}='{name.replace(chr(39), chr(39) * 2)}'"], {})


@pytest.mark.parametrize(
    ("typed", "name"),
    [("010", "010"), ("no", "no"), ("2024", "2024"), ("'1.10'", "1.10"), ("1e3", "1e3")],
)
def test_a_name_is_always_the_text_that_was_typed(tmp_path: Path, typed: str, name: str) -> None:
    path = write(tmp_path, {"e.yaml": EVAL.replace("exp_id: e", f"exp_id: {typed}")})
    assert load_eval(path, [], {}).config.exp_id == name


def test_a_name_yaml_would_change_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"e.yaml": EVAL.replace("exp_id: e", "exp_id: 1.10")})
    with pytest.raises(ConfigError, match=r"exp_id = 1\.1: should be a valid string") as e:
        load_eval(path, [], {})
    assert e.value.hint == "put it in quotes"


def test_numbers_and_switches_may_come_from_the_environment(tmp_path: Path) -> None:
    text = PRACTICE + "practice: {epochs: '${oc.env:N}', shuffle_data: '${oc.env:B,false}'}"
    path = write(tmp_path, {"p.yaml": text})
    practice = load_practice(path, [], {"N": "7"}).config.practice
    assert (practice.epochs, practice.shuffle_data) == (7, False)
    with pytest.raises(ConfigError, match=r"practice\.epochs = '\$\{oc.env:N\}': should be"):
        load_practice(path, [], {"N": "7x"})
    free = "evaluation.agent.model.model_settings.extra_body={a: ['${oc.env:N}']}"
    config = load_practice(path, [free], {"N": "7"}).config
    body = config.evaluation.agent.model.model_settings.extra_body
    assert body == {"a": ["7"]}
    assert type(body["a"][0]) is str


def test_a_loaded_config_cannot_be_changed(tmp_path: Path) -> None:
    config = load_practice(write(tmp_path, {"p.yaml": PRACTICE}), [], {}).config
    with pytest.raises(ValueError, match="frozen"):
        config.practice.epochs = 9  # type: ignore[misc]


def test_the_best_step_is_never_chosen_on_the_test_set(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE})
    with pytest.raises(ConfigError, match="worthless"):
        load_practice(path, ["evaluation.data.dataset=D", "practice.select_dataset=D"], {})
    with pytest.raises(ConfigError, match=r"do_eval needs evaluation\.data\.dataset"):
        load_practice(path, ["practice.do_eval=true"], {})


def test_the_stored_text_loads_again_as_the_same_config(tmp_path: Path) -> None:
    path = write(tmp_path, REFERENCE)
    loaded = load_practice(path, ["practice.grpo_n=7"], ENV)
    again = stored_practice(loaded.text, loaded.base_dir, ENV)
    assert again.config == loaded.config
    assert again.text == loaded.text
    part = load_eval(path, [], ENV)
    assert stored_eval(part.text, part.base_dir, ENV).text == part.text
    other = stored_eval(loaded.text, loaded.base_dir, ENV, ["pass_k=2"])
    assert (other.config.exp_id, other.config.pass_k) == ("one_eval", 2)


def test_the_stored_text_has_variables_but_no_secrets(tmp_path: Path) -> None:
    secrets = ["sk-literal-1", "hunter2hunter", "header-value", "query-value", "sk-student-000"]
    at = "evaluation.agent.model"
    flags = [
        f"{at}.model_provider.api_key=sk-literal-1",
        f"{at}.model_provider.base_url=https://me:hunter2hunter@h.example/v1?k=query-value",
        f"{at}.model_settings.extra_headers={{X-Key: header-value, A: 'Bearer ${{oc.env:T}}'}}",
        f"{at}.model_settings.metadata={{note: never say sk-literal-1}}",
        "practice.teacher_model.model_provider.api_key=${oc.env:UTU_LLM_API_KEY}",
    ]
    env = {**ENV, "T": "token-token"}
    loaded = load_practice(write(tmp_path, {"p.yaml": PRACTICE.replace("sim", "m")}), flags, env)
    for secret in secrets:
        assert secret not in loaded.text
    assert "${oc.env:UTU_LLM_API_KEY}" in loaded.text
    assert "Bearer ${oc.env:T}" in loaded.text
    assert "https://***@h.example/v1?k=***" in loaded.text
    assert "never say ***" in loaded.text


def test_a_hidden_key_comes_from_the_environment_or_is_asked_for(tmp_path: Path) -> None:
    at = "evaluation.agent.model.model_provider"
    flags = [f"{at}.model=m", f"{at}.base_url=https://h/v1", f"{at}.api_key=sk-literal-1"]
    text = load_practice(write(tmp_path, {"p.yaml": PRACTICE}), flags, {}).text
    for env in (
        {"UTU_LLM_API_KEY": "new-key"},
        {"UTU_LLM_API_KEY": "new-key", "UTU_LLM_BASE_URL": "https://h/other"},
    ):
        found = stored_practice(text, tmp_path, env).config.evaluation.agent.model.model_provider
        assert (found.key, found.base_url) == ("new-key", "https://h/v1")
    with pytest.raises(ConfigError, match="redacted when the config was stored"):
        stored_practice(text, tmp_path, ENV)
    again = stored_practice(text, tmp_path, {}, [f"{at}.api_key=sk-literal-2"])
    assert again.config.evaluation.agent.model.model_provider.key == "sk-literal-2"


@pytest.mark.parametrize(
    "flag",
    [
        "model.model_settings.extra_headers={X: abc}",
        "model.model_provider.base_url=https://u:p@h/v1",
        "model.model_provider.base_url=https://h/v1?key=p",
    ],
)
def test_other_hidden_values_are_asked_for(tmp_path: Path, flag: str) -> None:
    flags = ["evaluation.agent.model.model_provider.model=m", f"evaluation.agent.{flag}"]
    text = load_practice(write(tmp_path, {"p.yaml": PRACTICE}), flags, ENV).text
    with pytest.raises(ConfigError, match="redacted when the config was stored"):
        stored_practice(text, tmp_path, ENV)


def test_stars_in_a_prompt_are_only_stars(tmp_path: Path) -> None:
    flags = ["evaluation.agent.agent.instructions='Be ***bold*** at http://x'"]
    loaded = load_practice(write(tmp_path, {"p.yaml": PRACTICE}), flags, {})
    assert stored_practice(loaded.text, tmp_path, {}).config == loaded.config


def test_an_agent_file_is_checked_like_any_other(tmp_path: Path) -> None:
    path = write(tmp_path, {"a.yaml": "type: simple\nagnet: {name: a}\n"})
    with pytest.raises(ConfigError, match=r"a\.yaml:2: agent\.agnet.*unknown key") as e:
        agent_in(path, ENV)
    assert e.value.hint == "did you mean agent?"
    composed = write(tmp_path, {"b.yaml": REFERENCE["configs/agents/practice/solver.yaml"],
                                "model/base.yaml": MODEL_BASE})  # fmt: skip
    assert agent_in(composed, ENV).agent.name == "solver"


def test_what_is_odd_about_the_dotenv_is_passed_on(tmp_path: Path) -> None:
    env = Environment({}, {}, tmp_path / ".env", ["mind the mode"])
    assert load_practice(write(tmp_path, {"p.yaml": PRACTICE}), [], env).notices == [
        "mind the mode"
    ]


def test_a_key_of_that_name_deeper_in_the_section_is_meant(tmp_path: Path) -> None:
    path = write(tmp_path, {"e.yaml": EVAL, "p.yaml": PRACTICE})
    for load, file, key in (
        (load_eval, "e.yaml", "model"),
        (load_practice, "p.yaml", "evaluation.model"),
    ):
        with pytest.raises(ConfigError, match="unknown key") as e:
            load(path.with_name(file), [f"{key}=x"], {})
        assert e.value.hint is not None
        assert e.value.hint.endswith("agent.model.model_provider.model?")
