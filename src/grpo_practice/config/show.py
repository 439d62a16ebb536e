"""What a person may see of a config, and what nobody may."""

from typing import Any

from pydantic import BaseModel

from grpo_practice.config.reading.yaml_reader import dump_yaml
from grpo_practice.config.redact import redact, secrets_in
from grpo_practice.redact import redactor


def redacted(config: BaseModel) -> dict[str, Any]:
    """The config as plain values, secrets hidden."""
    values = config.model_dump()
    redactor.know(secrets_in(values))
    hidden: dict[str, Any] = redactor.value(redact(values))
    return hidden


def show(config: BaseModel) -> str:
    """The resolved config as YAML, secrets hidden."""
    return dump_yaml(redacted(config))
