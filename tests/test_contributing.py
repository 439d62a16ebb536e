"""CONTRIBUTING.md names files and functions that exist, and recipes for all that is added often."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = (ROOT / "src/grpo_practice", ROOT)
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
RECIPES = {
    "a page of the viewer",
    "a verify function",
    "a tool",
    "a dataset of the catalogue",
    "a stage of distillation",
    "an event",
    "a gate after the merge",
    "an export format",
    "a column",
    "a figure in `runs show`",
    "a command",
    "a config key",
    "a key of `train:`",
    "a kind of failure",
}


def file_called(name: str) -> Path | None:
    found = [place / name for place in PLACES if (place / name).exists()]
    return found[0] if found else None


def defined(path: Path) -> set[str]:
    """Return the names that a file defines: functions, classes, methods, constants."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return names


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_/]+(?:\.py|/))[:`]", TEXT))))
def test_every_file_that_is_named_exists(name: str) -> None:
    if "NAME" not in name and not name.startswith("tools/name"):
        assert file_called(name), f"CONTRIBUTING.md names {name}, which is not there"


@pytest.mark.parametrize(("name", "what"), sorted(set(re.findall(r"`([\w/]+\.py): (\w+)`", TEXT))))
def test_every_hop_of_a_walk_exists(name: str, what: str) -> None:
    path = file_called(name)
    assert path is not None, f"CONTRIBUTING.md names {name}, which is not there"
    assert what in defined(path), f"CONTRIBUTING.md names {what} in {name}, which is not there"


def test_there_is_a_recipe_for_all_that_is_added_often() -> None:
    assert set(re.findall(r"^\*\*(.+?)\.\*\*", TEXT, re.M)) == RECIPES
