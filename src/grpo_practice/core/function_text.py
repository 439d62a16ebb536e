"""The source of a user's function: its kind and its requirements, found without running it."""

import ast
import importlib.util
import re
import textwrap
from contextlib import suppress

_ASYNC = ast.AsyncFunctionDef


def definition(text: str, func: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the last definition of a function in a text, without running anything."""
    with suppress(SyntaxError, ValueError):
        # Reversed, because the last definition is the one that stays when the file is run.
        for node in reversed(ast.parse(textwrap.dedent(text)).body):
            if isinstance(node, ast.FunctionDef | _ASYNC) and node.name == func:
                return node
    return None


def wants_llm(text: str, func: str) -> bool:
    """Return whether a function can use `llm`.

    Such a function has a parameter `llm`, reads `llm` from its `**kwargs`, or passes its `kwargs`
    on as a whole, as in `grade(sample, **kwargs)`.
    """
    found = definition(text, func)
    if found is None:
        return False
    given = found.args
    if any(arg.arg == "llm" for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)):
        return True
    rest = given.kwarg.arg if given.kwarg is not None else None
    nodes = list(ast.walk(found))
    keys = [key for node in nodes if (key := _key_read(node, rest)) is not None]
    uses = sum(isinstance(node, ast.Name) and node.id == rest for node in nodes)
    return "llm" in keys or uses > len(keys)


def _key_read(node: ast.AST, kwargs: str | None) -> str | None:
    """Return the key in `kwargs["key"]` or `kwargs.get("key", …)`; None for any other node."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))):
            return key if name == kwargs else None
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="get" | "pop"),
            args=[ast.Constant(value=str(key)), *_],
        ):
            return key if name == kwargs else None
        case _:
            return None


def defined_async(text: str, func: str) -> bool:
    """Return whether the text defines the function with `async def`."""
    return isinstance(definition(text, func), ast.AsyncFunctionDef)


def without(text: str, func: str) -> list[str] | None:
    """Return the functions that the text defines if it never mentions `func`; otherwise None."""
    with suppress(SyntaxError, ValueError):
        body = ast.parse(text).body
        # `import *` may define any name, so the file would have to be run to know.
        if re.search(rf"\b{re.escape(func)}\b|import \*", text) is None:
            return [d.name for d in body if isinstance(d, ast.FunctionDef | _ASYNC)]
    return None


def needs_of_reference(text: str) -> str | None:
    """Return the first imported module of the reference implementation that is not installed."""
    if importlib.util.find_spec("utu") is not None:
        return None
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                if name.partition(".")[0] == "utu" and name != "utu.db":
                    return name
    return None
