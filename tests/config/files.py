"""Config files for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_practice.config import (
    AgentConfig,
    Environment,
    EvalConfig,
    Loaded,
    PracticeConfig,
    StoredText,
    load_eval,
    load_practice,
)
from grpo_practice.config.reading.compose import Override
from grpo_practice.config.trust.word import Trust

ENV = {
    "UTU_LLM_MODEL": "student-1",
    "UTU_LLM_BASE_URL": "https://llm.example/v1",
    "UTU_LLM_API_KEY": "sk-student-000",
    "SERPER_API_KEY": "serper-000000",
    "JINA_API_KEY": "jina-00000000",
}

EVAL = """
exp_id: e
agent: {model: {model_provider: {model: sim}}}
data: {dataset: D}
verify: math
"""

PRACTICE = """
exp_id: p
data: {practice_dataset_name: P}
evaluation:
  agent: {model: {model_provider: {model: sim}}}
  verify: math
"""

MODEL_BASE = """
# @package _global_
model_provider:
  type: ${oc.env:UTU_LLM_TYPE}
  model: ${oc.env:UTU_LLM_MODEL}
  base_url: ${oc.env:UTU_LLM_BASE_URL}
  api_key: ${oc.env:UTU_LLM_API_KEY}
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write the files; the first one's path."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / next(iter(files))


def agent_in(path: Path, env: Mapping[str, str]) -> AgentConfig:
    """The agent in a file, as `eval --agent` takes it."""
    return load_eval(None, ["data.dataset=D", "verify=exact"], env, agent=path).config.agent


def stored_practice(
    text: str, base_dir: Path, env: Mapping[str, str], overrides: Sequence[Override] = ()
) -> Loaded[PracticeConfig]:
    """Load a stored practice config of a database that the user trusts."""
    return load_practice(_stored(text, base_dir), overrides, _trusting(env, base_dir))


def stored_eval(
    text: str,
    base_dir: Path,
    env: Mapping[str, str],
    overrides: Sequence[Override] = (),
    *,
    agent: Path | None = None,
) -> Loaded[EvalConfig]:
    """Load a stored evaluation config of a database that the user trusts."""
    stored, known = _stored(text, base_dir), _trusting(env, base_dir)
    return load_eval(stored, overrides, known, agent=agent)


def _stored(text: str, base_dir: Path) -> StoredText:
    return StoredText(text, base_dir, base_dir / "practice.db")


def _trusting(env: Mapping[str, str], base_dir: Path) -> Environment:
    return Environment(env, trust=Trust(files=frozenset({(base_dir / "practice.db").resolve()})))
