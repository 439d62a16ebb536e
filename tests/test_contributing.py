"""CONTRIBUTING.md names files and functions that exist, and recipes for all that is added often."""

import ast
import re
from pathlib import Path

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
    "a finding",
    "a command",
    "a config key",
    "an API of endpoints",
    "an option of a command that plays",
    "a kind of failure",
}


def file_called(name: str) -> Path | None:
    found = [place / name for place in PLACES if (place / name).exists()]
    return found[0] if found else None


def names_in(path: Path | None) -> set[str]:
    """Return the names that a file defines: functions, classes, methods, constants."""
    names = set[str]()
    if path is None:
        return names
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return names


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))[:`]", TEXT))
    examples = {name for name in named if "NAME" in name or name.startswith("tools/name")}
    assert [name for name in sorted(named - examples) if not file_called(name)] == []


def test_every_hop_of_a_walk_exists() -> None:
    hops = sorted(set(re.findall(r"`([\w/]+\.py): (\w+)`", TEXT)))
    assert len(hops) > 40
    wrong = [f"{name}: {what}" for name, what in hops if what not in names_in(file_called(name))]
    assert wrong == []


def test_there_is_a_recipe_for_all_that_is_added_often() -> None:
    assert set(re.findall(r"^\*\*(.+?)\.\*\*", TEXT, re.M)) == RECIPES
