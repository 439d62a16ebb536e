"""The contract drives the installed command and `Workspace`, and imports nothing else of ours."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ALLOWED = "grpo_practice.Workspace"
_NAMED = re.compile(r"\bgrpo_practice\.[a-z_]\w*")


def named(source: str) -> Iterator[str]:
    """Yield the modules and names that a source text imports, or names in a string to patch."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _NAMED.findall(node.value)


def inner(source: str) -> list[str]:
    """Return what a source text takes from inside the package."""
    return [
        name for name in named(source) if name.split(".")[0] == "grpo_practice" and name != ALLOWED
    ]


def helper(name: str) -> Path | None:
    """Return the file of a module below `tests` that an import names; None if it is not there."""
    parts = name.split(".")
    if parts[0] != "tests":
        return None
    tries = (ROOT.joinpath(*parts[:n]).with_suffix(".py") for n in range(len(parts), 0, -1))
    return next((path for path in tries if path.is_file()), None)


def contract() -> dict[Path, str]:
    """Return the source of each file of the contract and of the helpers that they import."""
    found, left = dict[Path, str](), sorted(HERE.rglob("*.py"))
    while left:
        path = left.pop()
        if path not in found:
            found[path] = path.read_text("utf-8")
            left += [file for name in named(found[path]) if (file := helper(name))]
    return found


def test_nothing_is_imported_but_the_workspace() -> None:
    bad = {str(path.relative_to(ROOT)): inner(source) for path, source in contract().items()}
    assert {path: names for path, names in bad.items() if names} == {}, (
        "a test of the contract types commands or calls methods of Workspace; one that needs the"
        " inside of the package stands outside tests/contract"
    )


@pytest.mark.parametrize(
    "source",
    [
        "from {}.cli.main import run",
        "from {} import workspace",
        "import {}",
        "import {}.store as s",
        "patch('{}.llm.client.Client', None)",
        "def f():\n    from {}.errors import ConfigError",
    ],
)
def test_an_import_of_the_inside_is_seen(source: str) -> None:
    assert inner(source.format("grpo_practice"))


def test_the_workspace_and_the_program_by_name_are_no_inside() -> None:
    assert not inner("from grpo_practice import Workspace\nrun('grpo-practice', 'grpo_practice')")
    helpers = {path.name for path in contract() if HERE not in path.parents}
    assert "processes.py" in helpers, "helpers outside the folder are looked at, too"
