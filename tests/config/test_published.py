"""Files of the shape in which the method's reference implementation ships its configs."""

from pathlib import Path

import pytest

from grpo_practice.config.reading.load import load_eval, load_practice
from grpo_practice.config.schema.tools import PythonToolkit, SearchToolkit
from grpo_practice.core.errors import ConfigError
from tests.config.files import ENV, MODEL_BASE, write

KEYS = {"SERPER_API_KEY": "serper-000000", "JINA_API_KEY": "jina-00000000"}
JUDGE = {
    "JUDGE_LLM_TYPE": "chat.completions",
    "JUDGE_LLM_MODEL": "judge-1",
    "JUDGE_LLM_BASE_URL": "https://judge.example/v1",
    "JUDGE_LLM_API_KEY": "sk-judge-0000",
}

PRACTICE = """
# @package _global_
defaults:
  # what is evaluated
  - /eval/{evaluation}@evaluation
  - _self_

exp_id: "{name}_practice"

practice:
  epochs: 1
  batch_size: 50
  grpo_n: 5
  rollout_concurrency: 128
  rollout_temperature: 0.7
  task_timeout: 1800
  do_eval: false
  eval_strategy: "epoch"
  rollout_data_truncate: 100
  eval_data_truncate: 50
  shuffle_data: true
  restart_step: null
  agent_objective: |
    input: A question
    output: Steps that lead to its answer
  learning_objective: |
    What helps to answer.
  num_experiences_per_query: 1

data:
  practice_dataset_name: "Practice-1k"
"""
AGENT = """
# @package _global_
defaults:
  - /model/base@model
  - /tools/{tool}@toolkits.{tool}
  - _self_

agent:
  name: an_agent
  instructions: |-
    Do it step by step. Code stands in
    ```python
    code
    ```.

    The end of the answer is:
    <answer>
    \\\\boxed{{{{'the answer'}}}}
    </answer>

max_turns: 50

model:
  model_settings:
    temperature: 0.3
    top_p: 0.95
    extra_args:
      timeout: 3000
"""
EVAL = """
# @package _global_
defaults:
  - /agents/practice/{agent}@agent
  - _self_

exp_id: "{agent}_eval"

data:
  dataset: "Test"
  type: "single"

concurrency: 128
pass_k: 32

verify_filename: "{verify}.py"
verify_func_name: "verify_func"
"""
JUDGED = """
judge_model:
  model_provider:
    type: ${oc.env:JUDGE_LLM_TYPE}
    model: ${oc.env:JUDGE_LLM_MODEL}
    base_url: ${oc.env:JUDGE_LLM_BASE_URL}
    api_key: ${oc.env:JUDGE_LLM_API_KEY}
  model_params:
    temperature: 0.5

judge_concurrency: 128
"""
PYTHON = (
    "name: python_executor\nmode: builtin\nactivated_tools: null\nconfig:\n  workspace_root: ./\n"
)
SEARCH = """
name: search
mode: builtin
activated_tools: null

config:
  search_engine: google  # one of several
  search_params: {}
  search_banned_sites: []

  crawl_engine: jina
  crawl_params: {}
  crawl_jina_params: {}

  summary_token_limit: 10_000

config_llm:
  model_provider:
    type: ${oc.env:UTU_LLM_TYPE}
    model: ${oc.env:UTU_LLM_MODEL}
"""
LEARNT = """
# @package _global_
defaults:
  - _self_

type: simple
model:
  model_provider:
    type: chat.completions
    model: model-2
    base_url: https://llm.example/v1
  model_settings:
    temperature: 0.3
    top_p: 0.95
    include_usage: true
    extra_args:
      timeout: 3000
  model_params: {}
agent:
  name: an_agent
  instructions: "Do it step by step.\\n\\nWhen solving, you MUST first read:\\n[G0]. Look twice:\\
    \\ check the end.\\n[G1]. Braces: {'x'} and {{y}} stay."
context_manager: {}
toolkits:
  python_executor:
    mode: builtin
    env_mode: local
    name: python_executor
    config: {}
    mcp_transport: stdio
    mcp_client_session_timeout_seconds: 20
max_turns: 50
"""


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    agents, evals = "configs/agents/practice", "configs/eval"
    write(
        tmp_path,
        {
            "configs/model/base.yaml": MODEL_BASE,
            "configs/tools/python_executor.yaml": PYTHON,
            "configs/tools/search.yaml": SEARCH,
            f"{agents}/sums.yaml": AGENT.format(tool="python_executor"),
            f"{agents}/walker.yaml": AGENT.format(tool="search"),
            f"{agents}/sums_practice.yaml": LEARNT,
            f"{evals}/math/sums.yaml": EVAL.format(agent="sums", verify="math"),
            f"{evals}/math/sums_practice.yaml": EVAL.format(agent="sums_practice", verify="math"),
            f"{evals}/web/walker.yaml": EVAL.format(agent="walker", verify="webwalker") + JUDGED,
            "configs/practice/sums.yaml": PRACTICE.format(evaluation="math/sums", name="sums"),
            "configs/practice/walker.yaml": PRACTICE.format(evaluation="web/walker", name="walker"),
        },
    )
    return tmp_path / "configs"


def test_a_practice_of_mathematics_loads_with_its_tool(configs: Path) -> None:
    loaded = load_practice(configs / "practice/sums.yaml", [], ENV)
    agent = loaded.config.evaluation.agent
    assert isinstance(agent.toolkits["python_executor"], PythonToolkit)
    assert "\\\\boxed{{'the answer'}}" in agent.agent.instructions
    assert loaded.config.evaluation.verify.name == "math"
    assert [text.partition(" is ")[0] for text in loaded.ignored] == [
        "evaluation.agent.toolkits.python_executor.config.workspace_root"
    ]


def test_a_practice_of_web_search_loads_with_its_tools_and_judge(configs: Path) -> None:
    env = {**ENV, **KEYS, **JUDGE}
    config = load_practice(configs / "practice/walker.yaml", [], env).config
    kit = config.evaluation.agent.toolkits["search"]
    assert isinstance(kit, SearchToolkit)
    assert (kit.config.search_engine, kit.config.summary_token_limit) == ("google", 10_000)
    assert kit.config_llm is not None
    assert kit.config_llm.model_provider.model == ENV["UTU_LLM_MODEL"]
    assert (config.evaluation.verify.name, config.evaluation.verify.params) == (
        "judge",
        {"preset": "webwalker"},
    )
    judge = config.evaluation.judge_model
    assert judge is not None
    assert judge.model_provider.model == "judge-1"
    assert judge.model_params.temperature == 0.5


def test_an_agent_that_learnt_there_is_evaluated_as_it_is(configs: Path) -> None:
    loaded = load_eval(configs / "eval/math/sums_practice.yaml", [], ENV)
    agent = loaded.config.agent
    assert agent.agent.instructions.endswith("[G1]. Braces: {'x'} and {{y}} stay.")
    assert "[G0]. Look twice: check the end.\n" in agent.agent.instructions
    assert list(agent.toolkits) == ["python_executor"]
    assert agent.model.model_provider.model == "model-2"


def test_a_search_engine_that_is_not_had_here_is_refused_with_those_that_are(configs: Path) -> None:
    path = configs / "tools/search.yaml"
    path.write_text(path.read_text("utf-8").replace("engine: google", "engine: duckduckgo"))
    with pytest.raises(ConfigError, match="use `google`"):
        load_practice(configs / "practice/walker.yaml", [], {**ENV, **KEYS, **JUDGE})
