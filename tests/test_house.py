"""The rules of the house: imports point down, files stay small, the core stays light."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src/grpo_practice"
DRAWING = (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8").split("```")[1]
LAYERS = [
    *(
        {name.partition("/")[0] for name in line[:44].split()}
        for line in DRAWING.splitlines()[::-1]
    ),
    {"__main__", "__init__"},
]
RANK = {name: i for i, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(ROOT.rglob("*.py"))


NAMED = re.compile(r"\bgrpo_practice(?:\.[a-z_]+)+")


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(source: str) -> set[str]:
    """Return the top-level rooms of this package that a source text imports from."""
    return {name.split(".")[0] for name in modules_named(source)}


@cache
def imports_and_texts(source: str) -> list[ast.ImportFrom | ast.Import | ast.Constant]:
    """Return the nodes of a source text that may name a module."""
    wanted = (ast.ImportFrom, ast.Import, ast.Constant)
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, wanted)]


@cache
def modules_named(source: str) -> set[str]:
    """Return the names of this package that a source text imports, without the package.

    A string that names a module counts: it is there to be imported, by a worker or a new process.
    """
    found = set()
    for node in imports_and_texts(source):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [name for name in NAMED.findall(node.value) if is_module(name)]
        else:
            continue
        found |= {n.partition(".")[2] for n in names if n.startswith("grpo_practice.")}
    return found - {"__version__", "Workspace"}  # names that the package itself gives everybody


def upward(here: str, source: str) -> set[str]:
    return {n for n in imports(source) if n != here and RANK[n] >= RANK[here]}


def test_the_drawing_has_every_package_and_module_and_no_other() -> None:
    drawn = sorted(name for layer in LAYERS for name in layer)
    here = (p for p in ROOT.iterdir() if p.suffix == ".py" or any(p.glob("*.py")))
    assert drawn == sorted(p.stem for p in here)


def test_imports_only_point_down() -> None:
    bad = {}
    for path in FILES:
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if above := upward(here, path.read_text("utf-8")):
            bad[str(path.relative_to(ROOT))] = f"layer {RANK[here]} may not import {sorted(above)}"
    assert bad == {}


def test_an_import_that_points_up_is_seen() -> None:
    assert upward("store", "from grpo_practice.main import app") == {"main"}
    assert upward("verify", "import grpo_practice.rollout.agents.simple") == {"rollout"}
    assert upward("store", "from grpo_practice import llm") == {"llm"}
    assert upward("verify", "PRELOADED = ['pebble', 'grpo_practice.main']") == {"main"}
    assert upward("store", "run('from grpo_practice.run import x')") == {"run"}
    assert not upward(
        "practice", "'grpo_practice.missing is no module; grpo_practice.store is one'"
    )
    assert not upward("practice", "from grpo_practice.store import Store")


SLICES = {"effects", "export", "serve", "tracing", "train", "viewer"}
"""Rooms that can be deleted: only the two files that put the program together name them."""


def test_a_slice_is_named_where_the_program_is_put_together_and_nowhere_else() -> None:
    together = {ROOT / "main.py", ROOT / "workspace.py"}
    named = {}
    for path in FILES:
        others = SLICES - {path.relative_to(ROOT).parts[0]}
        if path not in together and (found := imports(path.read_text("utf-8")) & others):
            named[str(path.relative_to(ROOT))] = found
    assert named == {}


def circles(modules: Mapping[str, str]) -> list[list[str]]:
    """Return the modules of each circle of imports; `modules`: name → source text.

    An import inside a function counts: whoever reads one file of a circle has to read all.
    """
    graph = {name: imported(name, source, modules) for name, source in modules.items()}
    reached = {name: reachable(name, graph) for name in graph}
    found = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return [list(circle) for circle in sorted(found)]


def imported(here: str, source: str, modules: Collection[str]) -> set[str]:
    names = set()
    for node in imports_and_texts(source):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole in modules else node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return (names & {*modules}) - {here}


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found, todo = set[str](), [start]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo += new
    return found


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def test_no_imports_go_in_a_circle() -> None:
    # The package itself gives everybody the version, and callers the Workspace.
    modules = {module_of(p): p.read_text("utf-8") for p in FILES if p != ROOT / "__init__.py"}
    assert circles(modules) == [], (
        "move what both need into the lower of them, or into a module below both"
    )


def test_an_import_in_a_circle_is_seen() -> None:
    low = "import json\nfrom p.b import x"
    assert circles({"p.a": low, "p.b": "def f():\n    from p import a", "p.c": low}) == [
        ["p.a", "p.b"]
    ]
    through_three = {"p.a": "import p.b", "p.b": "from p.c import x", "p.c": "from p.a import y"}
    assert circles(through_three) == [["p.a", "p.b", "p.c"]]
    assert not circles({"p": "from p.a import x", "p.a": "from p.b import x", "p.b": ""})


SHOWN = {"api", "core", "config", "reports", "run.requests"}
"""Rooms that a command may import from: the API, and values that it takes or returns."""


def shown(name: str) -> bool:
    """Return whether a command may import from the dotted name below the package."""
    return any(name == room or name.startswith(f"{room}.") for room in SHOWN)


def test_a_command_parses_calls_the_workspace_and_shows() -> None:
    bad = {}
    for path in sorted((ROOT / "cli").rglob("*.py")):
        names = {n for n in modules_named(path.read_text("utf-8")) if not n.startswith("cli.")}
        if below := {n for n in names if not shown(n)}:
            bad[path.name] = below
    assert bad == {}, (
        "make what they import a method of Workspace that returns a typed report, and take types"
        " from there or from reports"
    )


def test_the_store_knows_no_http_and_the_method_knows_no_sql() -> None:
    banned = {
        "store": {"httpx", "aiohttp"},
        "practice": {"typer", "rich", "sqlite3", "sqlite_utils"},
        "rollout": {"sqlite3", "typer", "rich"},
    }
    for place, names in banned.items():
        for path in FILES:
            if path.relative_to(ROOT).parts[0] == place:
                tree = ast.parse(path.read_text("utf-8"))
                used = {
                    (n.module or "").split(".")[0]
                    for n in ast.walk(tree)
                    if isinstance(n, ast.ImportFrom)
                }
                used |= {
                    a.name.split(".")[0]
                    for n in ast.walk(tree)
                    if isinstance(n, ast.Import)
                    for a in n.names
                }
                assert not used & names, f"{path} imports {used & names}"


HEAVY = {
    *("torch", "trl", "peft", "transformers", "datasets", "accelerate", "huggingface_hub"),
    *("optuna", "ray"),
}
"""Libraries of the extras [train], [tune] and [ray], which take seconds to import."""


def test_what_trains_is_imported_in_train_alone_and_where_it_is_used() -> None:
    bad = {}
    for path in FILES:
        source = path.read_text("utf-8")
        if not re.search(rf"\b({'|'.join(HEAVY)})\b", source):
            continue
        tree = ast.parse(source)
        named = {
            node: {(node.module or "").split(".")[0]}
            if isinstance(node, ast.ImportFrom)
            else {alias.name.split(".")[0] for alias in node.names}
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom | ast.Import)
        }
        room = path.relative_to(ROOT).parts[0]
        typed = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node, names in named.items():
            hub = names == {"huggingface_hub"} and room in ("data", "run")  # of the extra [hub]
            ray = names == {"ray"} and room == "rollout" and node.col_offset > 0
            if not names & HEAVY or node in typed or hub or ray:
                continue
            if room != "train" or node.col_offset == 0:
                bad[f"{path.relative_to(ROOT)}:{node.lineno}"] = names
    assert bad == {}


def test_no_file_is_longer_than_400_lines() -> None:
    tests = Path(__file__).parent.rglob("*.py")
    bench = Path(__file__).parents[1].glob("bench/*.py")
    long = {
        str(p): n for p in [*FILES, *tests, *bench] if (n := p.read_text("utf-8").count("\n")) > 400
    }
    assert not long


def test_the_nouns_need_no_library() -> None:
    code = (
        "import sys; from grpo_practice.core import errors, events, types;"
        "print([m for m in ('pydantic', 'httpx', 'numpy', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
