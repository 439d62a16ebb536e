"""Turns a Python function into a tool; its schema comes from type hints and docstring."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_type_hints

from docstring_parser import parse
from pydantic import BaseModel, Field, ValidationError, create_model

from grpo_practice.core.calls import Scope
from grpo_practice.rollout.tools import Output, Tool, ToolError


def tool_of(function: Callable[..., Awaitable[str | Output]], **more: Any) -> Tool:
    """Return the function as a tool with the same name.

    The model reads the function's docstring, including the descriptions of its arguments. A
    parameter annotated `Scope` receives the rollout's scope and is hidden from the model. `more`
    contains further fields of the tool.
    """
    hints = get_type_hints(function)
    scope = next((name for name, hint in hints.items() if hint is Scope), None)
    doc = parse(inspect.getdoc(function) or "")
    said = {p.arg_name: p.description or "" for p in doc.params}
    fields: dict[str, Any] = {
        name: (
            hints[name],
            Field(... if p.default is p.empty else p.default, description=said.get(name) or None),
        )
        for name, p in inspect.signature(function).parameters.items()
        if name != scope
    }
    model = create_model(function.__name__, **fields)

    async def run(arguments: Mapping[str, Any], at: Scope) -> Output:
        given = _checked(model, arguments)
        if scope is not None:
            given[scope] = at
        said = await function(**given)
        return said if isinstance(said, Output) else Output(said)

    about = "\n\n".join(t for t in (doc.short_description, doc.long_description) if t)
    return Tool(function.__name__, about, schema_of(model), run, **more)


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the model's JSON schema without titles, which only repeat the names."""
    schema = model.model_json_schema()
    schema.pop("title", None)
    for field in schema["properties"].values():
        field.pop("title", None)
    return schema


def _checked(model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validated arguments; raise a ToolError that names every invalid argument."""
    unknown = sorted(arguments.keys() - model.model_fields.keys())
    if unknown:
        known = ", ".join(model.model_fields)
        raise ToolError(f"there is no argument {', '.join(unknown)}; there are: {known}")
    try:
        filled = model.model_validate(dict(arguments))
    except ValidationError as e:
        wrong = [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in e.errors()]
        raise ToolError("the arguments are invalid: " + "; ".join(wrong)) from e
    # Not model_dump(), which would turn nested models into dicts.
    return {name: getattr(filled, name) for name in model.model_fields}
