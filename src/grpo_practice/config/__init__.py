"""YAML, flags and environment in; one frozen, typed config out."""

from grpo_practice.config.reading.discover import find_config
from grpo_practice.config.reading.env import Environment, read_environment
from grpo_practice.config.reading.load import (
    Loaded,
    StoredText,
    load_eval,
    load_practice,
)
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.runs import EvalConfig, PracticeConfig, RunConfig
from grpo_practice.config.yaml_document import show

__all__ = [
    "AgentConfig",
    "Environment",
    "EvalConfig",
    "Loaded",
    "PracticeConfig",
    "RunConfig",
    "StoredText",
    "find_config",
    "load_eval",
    "load_practice",
    "read_environment",
    "show",
]
