"""A toolkit that has a class is known to the config and to the table of keys."""

from typing import get_args

import pytest
from pydantic import BaseModel, TypeAdapter

from grpo_practice.config.schema import tools
from grpo_practice.config.schema.tools import BUILT_IN, McpToolkit, Toolkit
from tests.config.reference import reference_markdown

KITS = [
    kit
    for kit in vars(tools).values()
    if isinstance(kit, type) and kit.__name__.endswith("Toolkit") and kit.__name__ != "_Toolkit"
]


@pytest.mark.parametrize("kit", [kit for kit in KITS if kit is not McpToolkit])
def test_a_built_in_toolkit_can_be_configured_and_is_in_the_table(kit: type[BaseModel]) -> None:
    (name,) = get_args(kit.model_fields["name"].annotation)
    assert name in BUILT_IN, f"name {name!r} in BUILT_IN of config/schema/tools.py"
    found: object = TypeAdapter(Toolkit).validate_python({"name": name})
    assert type(found) is kit, f"name {kit.__name__} in Toolkit of config/schema/tools.py"
    said = f"| `evaluation.agent.toolkits.{name}.config."
    assert said in reference_markdown(), f"name {kit.__name__} in tests/config/reference.py"


def test_nothing_else_is_built_in() -> None:
    assert len(KITS) == len(BUILT_IN) + 1
