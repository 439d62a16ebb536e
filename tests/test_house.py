"""The rules of the house: imports point down, files stay small, the core stays light."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src/grpo_practice"
DRAWING = (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8").split("```")[1]
LAYERS = [
    *(
        {name.partition("/")[0] for name in line[:33].split()}
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
    """The top-level rooms of this package that a source text imports from.

    A string that names a module counts: it is there to be imported, by a worker or a new process.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [name for name in NAMED.findall(node.value) if is_module(name)]
        else:
            continue
        found |= {n.split(".")[1] for n in names if n.startswith("grpo_practice.")}
    return {n for n in found if n != "__version__"}


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
    assert upward("store", "from grpo_practice.cli.main import app") == {"cli"}
    assert upward("verify", "import grpo_practice.agents.simple") == {"agents"}
    assert upward("store", "from grpo_practice import llm") == {"llm"}
    assert upward("verify", "PRELOADED = ['pebble', 'grpo_practice.cli.main']") == {"cli"}
    assert upward("store", "run('from grpo_practice.app import x')") == {"app"}
    assert not upward("practice", "'grpo_practice.demo is no module; grpo_practice.store is one'")
    assert not upward("practice", "from grpo_practice.store import Store")


SHOWN = {
    *("workspace", "reports", "events", "progress", "errors", "config", "redact", "stats", "text"),
    *("calls", "types", "export", "sim", "chat_server"),
}
"""Rooms that a command may import from: the API, and values that it takes or returns."""


def test_a_command_parses_calls_the_workspace_and_shows() -> None:
    bad = {}
    for path in sorted((ROOT / "cli").rglob("*.py")):
        if below := imports(path.read_text("utf-8")) - SHOWN - {"cli"}:
            bad[path.name] = below
    assert bad == {}, (
        "make what they import a method of Workspace that returns a typed report, and take types"
        " from there or from reports"
    )


def test_the_store_knows_no_http_and_the_method_knows_no_sql() -> None:
    banned = {
        "store": {"httpx", "aiohttp"},
        "practice": {"typer", "rich", "sqlite3", "sqlite_utils"},
        "rollout.py": {"sqlite3", "typer", "rich"},
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
        tree = ast.parse(path.read_text("utf-8"))
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
            hub = names == {"huggingface_hub"} and room in ("data", "app")  # of the extra [hub]
            ray = names == {"ray"} and room == "agents" and node.col_offset > 0
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
        "import sys, grpo_practice.types, grpo_practice.events, grpo_practice.errors;"
        "print([m for m in ('pydantic', 'httpx', 'numpy', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
