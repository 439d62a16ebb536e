"""The table of all config keys, written by the models themselves."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from grpo_practice.config.reading.problems import model_in
from grpo_practice.config.schema.base import Model
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.tools import McpToolkit, PythonToolkit, SearchToolkit


def reference_markdown() -> str:
    """Write every key of a practice config as a Markdown table: key, values, default, meaning.

    A model's keys are listed once, under `evaluation.agent.model`; the teacher and the judge have
    the same. The keys under `evaluation.` are the top-level keys of an evaluation config.
    """
    kits = "evaluation.agent.toolkits"
    rows = ["| key | values | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{key}` | {_kind(field.annotation)} | {_default(field)} | "
        + " ".join(meaning.split()).replace("|", "\\|")
        + " |"
        for key, field, meaning in [
            *_fields(PracticeConfig, ""),
            *_fields(PythonToolkit, f"{kits}.python_executor."),
            *_fields(SearchToolkit, f"{kits}.search."),
            *_fields(McpToolkit, f"{kits}.NAME."),
        ]
    ]
    return "\n".join(rows) + "\n"


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each field of the model and its bases."""
    found = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Model):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(tree, ast.ClassDef)
            for field, text in pairwise(tree.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    found[ast.unparse(field.target)] = str(ast.literal_eval(text.value))
    return found


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo, str]]:
    meanings = _meanings(model)
    for name, field in model.model_fields.items():
        if name in WORKED_OUT:
            continue
        inner = model_in(field.annotation)
        listed = name in ("train", "ray") or field.default is not None
        if inner is None or not listed or name == "verify":
            yield f"{prefix}{name}", field, meanings.get(name, "")
        else:
            yield from _fields(inner, f"{prefix}{name}.")


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{v}`" for v in get_args(annotation))
    # A union with a Literal is of typing's own type.
    if get_origin(annotation) in (types.UnionType, Union):
        kinds = [_kind(kind) for kind in get_args(annotation) if kind is not types.NoneType]
        return " or ".join(dict.fromkeys(kinds))
    if annotation in (None, types.NoneType):
        return "null"
    if get_origin(annotation) is tuple:
        return "text or list"
    if get_origin(annotation) is dict or model_in(annotation):
        return "mapping"
    return {str: "text", int: "whole number", float: "number", bool: "`true` or `false`"}.get(
        annotation, "text"
    )


def _default(field: FieldInfo) -> str:
    default = field.default
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel | dict) or default in ("", ()):
        return ""
    return f"`{'null' if default is None else str(default).lower()}`"
