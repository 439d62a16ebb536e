"""Every key of the published schema: used, ignored with a sentence, or refused with a way out."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.reading.load import Loaded, load_eval, load_practice
from grpo_practice.config.reading.yaml_reader import plain
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.tools import SearchToolkit
from grpo_practice.core.errors import ConfigError
from grpo_practice.verify.resolve import resolve
from tests.config.files import ENV, EVAL, PRACTICE, write

AGENT = "evaluation.agent"
PROVIDER = "evaluation.agent.model.model_provider"
SETTINGS = "evaluation.agent.model.model_settings"
PARAMS = "evaluation.agent.model.model_params"

USED = {
    "exp_id": "x",
    "practice.epochs": "2",
    "practice.batch_size": "8",
    "practice.grpo_n": "3",
    "practice.rollout_concurrency": "9",
    "practice.rollout_temperature": "0.5",
    "practice.rollout_data_truncate": "11",
    "practice.task_timeout": "12.5",
    "practice.shuffle_data": "false",
    "practice.restart_step": "1",
    "practice.agent_objective": "in ${x}",
    "practice.learning_objective": "out ${y}",
    "practice.given_ground_truth": "false",
    "practice.num_experiences_per_query": "4",
    "practice.eval_strategy": "steps",
    "practice.eval_steps": "5",
    "practice.eval_data_truncate": "6",
    "practice.seed": "7",
    "practice.drop_last": "true",
    "practice.prompts_dir": "prompts",
    "practice.select_dataset": "val",
    "practice.max_failed_share": "0.5",
    "data.practice_dataset_name": "Q",
    "evaluation.exp_id": "y",
    "evaluation.concurrency": "3",
    "evaluation.pass_k": "4",
    "evaluation.judge_concurrency": "5",
    "evaluation.batch_size": "6",
    "evaluation.seed": "7",
    "evaluation.data.dataset": "T",
    "evaluation.data.type": "mixed",
    f"{AGENT}.type": "simple",
    f"{AGENT}.agent.name": "n",
    f"{AGENT}.agent.instructions": "do ${it}",
    f"{AGENT}.max_turns": "3",
    f"{PROVIDER}.type": "chat.completions",
    f"{PROVIDER}.model": "m",
    f"{PROVIDER}.requests_per_minute": "60",
    f"{PROVIDER}.tokens_per_minute": "90000",
    f"{PROVIDER}.stream": "true",
    f"{PROVIDER}.send_seed": "false",
    f"{PROVIDER}.max_reply_mib": "128",
    f"{SETTINGS}.temperature": "0.1",
    f"{SETTINGS}.top_p": "0.2",
    f"{SETTINGS}.frequency_penalty": "0.3",
    f"{SETTINGS}.presence_penalty": "0.4",
    f"{SETTINGS}.max_tokens": "5",
    f"{SETTINGS}.tool_choice": "auto",
    f"{SETTINGS}.parallel_tool_calls": "false",
    f"{SETTINGS}.verbosity": "low",
    f"{SETTINGS}.top_logprobs": "2",
    f"{SETTINGS}.store": "true",
    f"{SETTINGS}.prompt_cache_retention": "24h",
    f"{SETTINGS}.include_usage": "true",
    f"{PARAMS}.temperature": "0.1",
    f"{PARAMS}.top_p": "0.2",
    f"{PARAMS}.parallel_tool_calls": "true",
}


def load(tmp_path: Path, *flags: str) -> Loaded[PracticeConfig]:
    return load_practice(write(tmp_path, {"p.yaml": PRACTICE}), flags, ENV)


def at(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


def test_used(tmp_path: Path) -> None:
    before = load(tmp_path).config
    loaded = load(tmp_path, *(f"{key}={value}" for key, value in USED.items()))
    assert {key: at(loaded.config, key) for key in USED} == {k: plain(v) for k, v in USED.items()}
    assert loaded.ignored == []
    same = {key for key in USED if at(before, key) == at(loaded.config, key)}
    assert same == {f"{AGENT}.type", f"{PROVIDER}.type"}  # these have one value without more keys


@pytest.mark.parametrize("key", ["metadata", "extra_query", "extra_body", "extra_args"])
def test_used_as_a_mapping(tmp_path: Path, key: str) -> None:
    loaded = load(tmp_path, f"{SETTINGS}.{key}={{a: 1}}")
    assert at(loaded.config, SETTINGS).given() == {key: {"a": 1}}


def test_used_teacher_model_do_eval_reasoning_and_lists(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "practice.teacher_model.model_provider.model=sim:t",
        "practice.do_eval=true",
        "evaluation.data.dataset=T",
        f"{SETTINGS}.reasoning={{effort: low}}",
        f"{SETTINGS}.extra_headers={{X: y}}",
        f"{SETTINGS}.tool_choice={{type: none}}",
    )
    practice = loaded.config.practice
    assert practice.do_eval
    assert practice.teacher_model is not None
    assert practice.teacher_model.model_provider.model == "sim:t"
    assert at(loaded.config, SETTINGS).given() == {
        "reasoning": {"effort": "low"},
        "extra_headers": {"X": "y"},
        "tool_choice": {"type": "none"},
    }


@pytest.mark.parametrize("seconds", ["0", "-1", "true", "'5'"])
def test_the_deadline_in_extra_args_is_a_positive_number(tmp_path: Path, seconds: str) -> None:
    with pytest.raises(ConfigError, match="timeout should be a positive number"):
        load(tmp_path, f"{SETTINGS}.extra_args={{timeout: {seconds}}}")


def test_the_defaults_are_the_published_ones(tmp_path: Path) -> None:
    practice = load(tmp_path).config.practice
    assert (practice.epochs, practice.batch_size, practice.grpo_n) == (3, 64, 5)
    assert (practice.rollout_concurrency, practice.rollout_temperature) == (4, 0.7)
    assert (practice.rollout_data_truncate, practice.task_timeout) == (None, 3600)
    assert (practice.shuffle_data, practice.restart_step) == (True, None)
    assert (practice.given_ground_truth, practice.num_experiences_per_query) == (True, 2)
    assert (practice.do_eval, practice.eval_strategy, practice.eval_steps) == (False, "epoch", 1)
    evaluation = load(tmp_path).config.evaluation
    assert (evaluation.concurrency, evaluation.pass_k, evaluation.judge_concurrency) == (16, 1, 16)
    assert (evaluation.batch_size, evaluation.seed, evaluation.agent.max_turns) == (8, 0, 50)


IGNORED = {
    "practice.gate": "none",
    "practice.preset": "null",
    "evaluation.db_url": "sqlite:///x",
    "evaluation.eval_method": "GAIA",
    "evaluation.data.question_field": "q",
    "evaluation.data.gt_field": "a",
    "evaluation.judge_model": "{model_provider: {type: '${oc.env:NOT_SET}'}}",
    f"{SETTINGS}.truncation": "auto",
    f"{SETTINGS}.response_include": "[x]",
    f"{SETTINGS}.reasoning.generate_summary": "auto",
    "evaluation.agent.model.termination_max_tokens": "9",
    f"{PROVIDER}.origin": "here",
    f"{AGENT}.runner": "x",
    f"{AGENT}.context_manager": "{}",
    f"{AGENT}.env": "null",
    f"{AGENT}.enabled_skills": "[]",
    f"{AGENT}.planner_model": "{a: '${oc.env:NOT_SET}'}",
    f"{AGENT}.planner_config": "{}",
    f"{AGENT}.workers": "{}",
    f"{AGENT}.workers_info": "[]",
    f"{AGENT}.reporter_config": "{}",
    f"{AGENT}.workforce_planner_model": "{}",
    f"{AGENT}.orchestrator_router": "{}",
}


def test_ignored(tmp_path: Path) -> None:
    loaded = load(tmp_path, *(f"{key}={value}" for key, value in IGNORED.items()))
    said = [text.split(" is ignored: ")[0] for text in loaded.ignored]
    assert len(said) == len(IGNORED)
    assert all(any(key.endswith(name) for name in said) for key in IGNORED)
    assert loaded.config == load(tmp_path).config


REFUSED = {
    "practice.preset": ("paper-math", "names settings of the reference"),
    "practice.gate": ("paired", "--step best"),
    "practice.max_library_tokens": ("50", "greater than or equal to 100"),
    "practice.overlap": ("1.5", "less than or equal to 1"),
    "practice.summaries": ("sometimes", "should be 'auto', 'always' or 'never'"),
    "practice.teacher_context": ("1000", "greater than or equal to 2048"),
    f"{AGENT}.type": ("orchestra", "use `simple`"),
    f"{AGENT}.agent.instructions": ("[a, b]", "should be a string"),
    f"{AGENT}.toolkits.t": (
        "{mode: builtin}",
        "the built-in toolkits are python_executor and search",
    ),
    f"{AGENT}.toolkits.search.mode": ("customized", "`mode: mcp`"),
    f"{AGENT}.toolkits.search.env_mode": ("e2b", "only `local` is supported"),
    f"{AGENT}.toolkits.search.config.search_engine": ("duckduckgo", "use `google`"),
    f"{AGENT}.toolkits.search.config.crawl_engine": ("crawl4ai", "use `jina` or `local`"),
    f"{AGENT}.toolkits.search.config.serch": ("1", "unknown key"),
    f"{AGENT}.toolkits.x": ("{mode: mcp, config: {url: 'http://h/'}}", "needs config.command"),
    f"{AGENT}.toolkits.y.mcp_transport": ("sse", "use `streamable_http`"),
    f"{AGENT}.context_manager": ("{name: compact}", "not supported"),
    f"{AGENT}.env": ("{name: e2b}", "not supported"),
    f"{AGENT}.enabled_skills": ("[web]", "not supported"),
    f"{PROVIDER}.type": ("litellm", "use `chat.completions` or"),
    "practice.teacher_model.model_provider.type": ("litellm", "use `chat.completions` or"),
    "evaluation.judge_model.model_provider.type": ("litellm", "use `chat.completions` or"),
    "practice.hierarchical_learning": ("{enabled: true}", "unknown key"),
    "practice.grpo_n": ("1", "greater than or equal to 2"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_refused(tmp_path: Path, key: str) -> None:
    value, said = REFUSED[key]
    with pytest.raises(ConfigError) as e:
        load(tmp_path, f"{key}={value}")
    assert f"--set {key}: {key} = " in str(e.value)
    assert said in str(e.value)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("type=python", "type python needs function"),
        ("type=command", "type command needs command"),
        ("command=[agent]", "type simple does not use command"),
        ("function=a.py:f", "type simple does not use function"),
    ],
)
def test_an_agent_of_ones_own_names_its_program(tmp_path: Path, flag: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, f"{AGENT}.{flag}")


@pytest.mark.parametrize("command", ["python3 'my agent.py' -v", "[python3, my agent.py, -v]"])
def test_a_command_is_a_text_or_a_list(tmp_path: Path, command: str) -> None:
    loaded = load(tmp_path, f"{AGENT}.type=command", f"{AGENT}.command={command}").config
    assert loaded.evaluation.agent.command == ("python3", "my agent.py", "-v")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python3 'agent.py", "cannot be split into words: No closing quotation"),
        ("7", "should be a string or a list of strings"),
        ("{a: b}", "should be a string or a list of strings"),
        ("''", "type command needs command"),
    ],
)
def test_a_command_that_is_none_is_refused(tmp_path: Path, command: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, f"{AGENT}.type=command", f"{AGENT}.command={command}")


def test_an_agent_of_ones_own_brings_its_own_tools(tmp_path: Path) -> None:
    own = [f"{AGENT}.type=python", f"{AGENT}.function=a.py:f"]
    with pytest.raises(ConfigError, match="brings its own tools"):
        load(tmp_path, *own, f"{AGENT}.toolkits={{search: {{}}}}")


@pytest.mark.parametrize("kind", ["orchestra", "orchestrator", "workforce"])
def test_agents_of_another_type_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"type = '{kind}'"):
        load(tmp_path, f"{AGENT}.type={kind}")


def test_toolkits_of_the_published_configs_are_taken_as_they_are(tmp_path: Path) -> None:
    search = (
        "{name: search, mode: builtin, activated_tools: null, env_mode: local, config: {"
        "search_engine: google, search_params: {}, search_banned_sites: [a.example],"
        " crawl_engine: jina, crawl_params: {}, crawl_jina_params: {},"
        " summary_token_limit: 10_000},"
        " config_llm: {model_provider: {type: '${oc.env:UTU_LLM_TYPE}', model: sim}}}"
    )
    python = "{name: python_executor, mode: builtin, config: {workspace_root: ./}}"
    loaded = load(tmp_path, f"{AGENT}.toolkits={{search: {search}, python_executor: {python}}}")
    kit = loaded.config.evaluation.agent.toolkits["search"]
    assert isinstance(kit, SearchToolkit)
    assert kit.config.search_banned_sites == ("a.example",)
    assert kit.config_llm is not None
    assert kit.config_llm.model_provider.type == "chat.completions"
    ignored = [text.split(" is ignored: ")[0].rpartition(".")[2] for text in loaded.ignored]
    assert sorted(ignored) == ["env_mode", "workspace_root"]


def test_a_toolkit_is_named_by_its_key_and_its_reader_is_the_agents_model(tmp_path: Path) -> None:
    kit = load(tmp_path, f"{AGENT}.toolkits={{search: {{}}}}").config.evaluation.agent.toolkits
    assert isinstance(kit["search"], SearchToolkit)
    llm = kit["search"].config_llm
    assert llm is not None
    assert llm.model_provider.model == "sim"


def test_eval_method_without_verify_says_what_to_write(tmp_path: Path) -> None:
    path = write(tmp_path, {"e.yaml": EVAL.replace("verify: math", "eval_method: GAIA")})
    with pytest.raises(ConfigError, match="write `verify:` instead"):
        load_eval(path, [], {})


def test_field_names_are_used_with_a_dataset_file(tmp_path: Path) -> None:
    flags = ["data.dataset=rows.jsonl", "data.question_field=q", "data.gt_field=a"]
    loaded = load_eval(write(tmp_path, {"e.yaml": EVAL}), flags, {})
    assert (loaded.config.data.question_field, loaded.config.data.gt_field) == ("q", "a")
    assert loaded.ignored == []


def test_practice_dataset_is_the_same_key(tmp_path: Path) -> None:
    text = PRACTICE.replace("practice_dataset_name", "practice_dataset")
    assert (
        load_practice(write(tmp_path, {"p.yaml": text}), [], {}).config.data.practice_dataset_name
        == "P"
    )
    with pytest.raises(ConfigError, match="differs from practice_dataset_name"):
        load_practice(tmp_path / "p.yaml", ["data.practice_dataset_name=Q"], {})


MINE = "def f(sample): return 1.0\n"
WEBWALKER = {"preset": "webwalker"}


@pytest.mark.parametrize(
    ("spelling", "name", "params", "timeout_s"),
    [
        ("verify: math", "math", {}, None),
        ("verify: my/score.py:check", "my/score.py:check", {}, None),
        ("verify: {name: regex, pattern: 'a+', timeout_s: 5}", "regex", {"pattern": "a+"}, 5.0),
        ("verify: {name: choice, params: {letters: ABC}}", "choice", {"letters": "ABC"}, None),
        ("verify_filename: math.py\nverify_func_name: verify_func", "math", {}, None),
        ("verify_filename: webwalker.py\nverify_func_name: f", "judge", WEBWALKER, None),
        ("verify_filename: own.py\nverify_func_name: f", "own.py:f", {}, None),
    ],
)
def test_verify_has_three_spellings(
    tmp_path: Path, spelling: str, name: str, params: object, timeout_s: float | None
) -> None:
    path = write(tmp_path, {"e.yaml": EVAL.replace("verify: math", spelling)})
    verify = load_eval(path, [], {}).config.verify
    assert (verify.name, verify.params, verify.timeout_s) == (name, params, timeout_s)


def test_a_scoring_file_beside_the_config_comes_before_the_built_in(tmp_path: Path) -> None:
    spelling = "verify_filename: math.py\nverify_func_name: f"
    path = write(tmp_path, {"e.yaml": EVAL.replace("verify: math", spelling), "math.py": ""})
    assert load_eval(path, [], {}).config.verify.name == "math.py:f"


@pytest.mark.parametrize(
    "spelling",
    [
        "verify: own.py:f",
        "verify: {name: 'own.py:f'}",
        "verify_filename: own.py\nverify_func_name: f",
        "verify_filename: math.py\nverify_func_name: f",
    ],
)
def test_a_verify_file_lies_beside_the_yaml_that_names_it(tmp_path: Path, spelling: str) -> None:
    evaluation = EVAL.replace("verify: math", spelling)
    for folder in ("configs/eval", "configs/practice"):
        (tmp_path / folder).mkdir(parents=True)
    write(tmp_path / "configs/eval", {"e.yaml": evaluation, "own.py": MINE, "math.py": MINE})
    text = "defaults: [/eval/e@evaluation, _self_]\nexp_id: p\n"
    text += "data: {practice_dataset_name: P}\n"
    config = write(tmp_path / "configs/practice", {"p.yaml": text})
    loaded = load_practice(config, [], {})
    spec = loaded.config.evaluation.verify
    found = resolve(spec.name, spec.params, None, loaded.base_dir)
    assert found.file is not None
    assert found.file.path.parent == tmp_path / "configs/eval"
    assert spec.name in loaded.text  # as stored, where no file tells the folder
    alone = load_eval(tmp_path / "configs/eval/e.yaml", [], {}).config.verify
    assert f"../eval/{alone.name}" == spec.name
    flag = load_practice(config, ["evaluation.verify=own.py:f"], {}).config.evaluation.verify
    assert flag.name == "own.py:f"


@pytest.mark.parametrize(
    ("spelling", "said"),
    [
        ("verify: os:system", "should be a built-in name, or path.py:function"),
        ("verify: a.py", "should be a built-in name, or path.py:function"),
        ("verify: 'a.py:f()'", "should be a built-in name, or path.py:function"),
        ("verify: {pattern: x}", "verify.name: is missing"),
        ("verify: [math]", "verify = "),
        ("verify: {name: math, timeout_s: 0}", "greater than 0"),
        ("verify_filename: a.py", "verify_func_name: is missing"),
        ("verify_func_name: f", "verify_filename: is missing"),
        ("verify: math\nverify_filename: a.py\nverify_func_name: f", "keep one of them"),
        ("verify_filename: a.txt\nverify_func_name: f", "should be a built-in name"),
    ],
)
def test_verify_that_cannot_be_is_refused(tmp_path: Path, spelling: str, said: str) -> None:
    path = write(tmp_path, {"e.yaml": EVAL.replace("verify: math", spelling)})
    with pytest.raises(ConfigError) as e:
        load_eval(path, [], {})
    assert said in f"{e.value} {e.value.hint}"
