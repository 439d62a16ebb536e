"""Nothing of the current folder is run: not by the command, and not by a process it starts."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.core.safe_path import safe_environment, safe_path
from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier

NAMES = [
    "abc",
    "asyncio",
    "collections",
    "copy",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "gmpy2",
    "importlib",
    "inspect",
    "io",
    "json",
    "logging",
    "math",
    "multiprocessing",
    "numbers",
    "numpy",
    "os",
    "pathlib",
    "pebble",
    "pickle",
    "queue",
    "random",
    "re",
    "runpy",
    "selectors",
    "signal",
    "sitecustomize",
    "socket",
    "statistics",
    "string",
    "struct",
    "subprocess",
    "sympy",
    "sys",
    "threading",
    "time",
    "token",
    "tokenize",
    "types",
    "typing",
    "usercustomize",
    "warnings",
]
"""Modules that Python, its multiprocessing, or what ours needs comes to import, or tries to."""
LOADED_BY_RUNPY = ("collections", "functools", "importlib", "types", "warnings")
"""Modules that `python -m` itself takes from the current folder, before anything of ours is run."""
COMMAND = (str(Path(sys.executable).with_name("grpo-practice")),)
MODULE = (sys.executable, "-m", "grpo_practice")
SAFE_MODULE = (sys.executable, "-P", "-m", "grpo_practice")
ASK_WORKER = ("verify", "math", "--answer", "x+1", "--response", r"\boxed{1+x}")
"""An answer that only a worker can compare."""


def plant(folder: Path, names: Sequence[str] = NAMES) -> Path:
    """Modules of these names, each of which leaves a mark; the file that would have the marks."""
    marks = folder / "marks.txt"
    for name in names:
        text = f"open({str(marks)!r}, 'a').write('{name} ')\nraise ImportError('planted')\n"
        (folder / f"{name}.py").write_text(text)
    return marks


def run(
    words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    given = {name: text for name, text in os.environ.items() if "LLM" not in name}
    return subprocess.run(
        words, cwd=folder, env=given | dict(env or {}), capture_output=True, text=True, check=False
    )


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    "start", [COMMAND, SAFE_MODULE, MODULE], ids=["command", "safe_module", "module"]
)
def test_modules_of_the_current_folder_are_run_by_no_process(
    tmp_path: Path, start: Sequence[str]
) -> None:
    left_out = LOADED_BY_RUNPY if start is MODULE else ()
    marks = plant(tmp_path, [name for name in NAMES if name not in left_out])
    ran = run([*start, *ASK_WORKER], tmp_path)
    assert not marks.exists(), marks.read_text()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "reward 1" in ran.stdout


COMMANDS = """
import json, sys
from grpo_practice.main import run
if __name__ == "__main__":
    sys.exit(max(run(words) for words in json.loads(sys.argv[1])))
"""
"""Several commands in one process."""


@pytest.mark.long
@pytest.mark.parametrize("apart", [False, True])
def test_runs_among_planted_modules_score_as_in_an_empty_folder(
    tmp_path: Path, apart: bool
) -> None:
    """One folder with and one without: practice, evaluation and doctor say the same in both."""
    said = []
    (tmp_path / "several.py").write_text(COMMANDS)
    for name in ("empty", "planted"):
        folder = tmp_path / name
        folder.mkdir()
        marks = plant(folder, NAMES if name == "planted" else ())
        rows = [{"question": f"What is {n}x + x?", "answer": f"{n + 1}x"} for n in range(3)]
        (folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (folder / "check.py").write_text(FUNCTION)
        (folder / "p.yaml").write_text(CONFIG)
        shared = ("--model", "sim", "--dataset", "q.jsonl", "--json")
        doctor, *others = (
            ["doctor", "--json"],
            ["eval", *shared, "--verify", "math"],
            ["eval", *shared, "--verify", "check.py:check"],
            ["practice", "--config", "p.yaml", "--json"],
        )
        # A file elsewhere, as the command is one: `-P` would be handed down to the workers.
        together = [sys.executable, str(tmp_path / "several.py"), json.dumps(others)]
        each = [[*COMMAND, *words] for words in others] if apart else [together]
        ran = [run(words, folder) for words in ([*COMMAND, *doctor], *each)]
        assert not any(r.returncode for r in ran), [r.stdout + r.stderr for r in ran]
        assert not marks.exists(), marks.read_text()
        with closing(sqlite3.connect(folder / "grpo-practice.db")) as db:
            rewards = db.execute(
                "SELECT branch_id, slot, attempt, reward, response FROM rollouts"
                " JOIN verdicts USING (rollout_id) JOIN rollout_bodies USING (rollout_id)"
            )
            said.append([sorted(rewards), json.loads(ran[0].stdout)["exit"]])
    assert said[0] == said[1]
    assert len(said[0][0]) == 3 + 3 + 2 * 3


CONFIG = """
exp_id: p
evaluation:
  agent: {model: {model_provider: {model: sim}}}
  verify: math
data: {practice_dataset_name: q.jsonl}
practice: {epochs: 1, batch_size: 3, grpo_n: 2}
"""


FUNCTION = """
import random, types, json, math, decimal, numpy
def check(sample, **kwargs):
    assert random.Random(1).random() and math.pi and decimal.Decimal(1) and numpy.array
    return {"reward": float(sample.correct_answer in sample.response.split("{")[-1])}
"""


SCRIPT = """
import os, sys
os.environ["PYTHONPATH"] = {python_path!r}
sys.path.insert(0, "")
import asyncio, pathlib
from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier

async def main():
    for name, answer in (("sub/own.py:check", "any"), ("math", "1+x")):
        async with Verifier(resolve(name, {{}}, 60.0, pathlib.Path())) as verify:
            verdict = await verify(Sample("q", "x+1"), "\\\\boxed{{%s}}" % answer, None)
            print(verdict.reward, verdict.critique)

if __name__ == "__main__":
    asyncio.run(main())
"""
SEES = """
import importlib.util, json, os, sys
def check(sample, **kwargs):
    here = [p for p in sys.path if not p or os.path.realpath(p) == os.path.realpath(".")]
    found = importlib.util.find_spec("elsewhere")
    return {"reward": 1.0, "reasoning": json.dumps([here, found is not None])}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "python_path",
    [".", "", f"{os.pathsep}/nowhere", "./"],
)
def test_workers_of_a_script_see_nothing_of_the_folder_that_the_script_imports_from(
    tmp_path: Path, python_path: str
) -> None:
    later = {"typing", "types", "copy", "re", "enum", "functools", "collections"}
    (tmp_path / "elsewhere.py").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "own.py").write_text(SEES)
    (tmp_path / "script.py").write_text(SCRIPT.format(python_path=python_path))
    # What the script's own process would import from its folder is left out: only ours count.
    names = [name for name in NAMES if name not in later]
    code = f"import sys; sys.path.pop(0); {_IMPORT_ALL}; sys.argv = ['script.py']; import runpy"
    code += "; runpy.run_path('script.py', run_name='__main__')"
    marks = plant(tmp_path, [*names, "sitecustomize", "usercustomize"])
    ran = run([sys.executable, "-c", code], tmp_path)
    assert not marks.exists(), marks.read_text()
    assert ran.stdout == "1.0 [[], false]\n1.0 None\n", ran.stderr


_IMPORT_ALL = "import asyncio, grpo_practice.verify.verifier, grpo_practice.verify.symbolic, pebble"


@pytest.mark.parametrize(
    "name",
    [
        *("math", "types", "helper"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("random", "json", "sympy")),
    ],
)
async def test_a_verify_file_of_any_name_imports_what_is_beside_it(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text(
        "import math, random, types, json\n"
        "from beside import right\n"
        "def check(sample, **kwargs):\n"
        "    import later.inner\n"
        "    assert random.random() < 1 and math.pi > 3 and types.ModuleType and json.dumps(1)\n"
        "    return {'reward': right(sample), 'reasoning': later.inner.NAME}\n"
    )
    (tmp_path / "beside.py").write_text("import deeper\nright = deeper.right\n")
    (tmp_path / "deeper.py").write_text("right = lambda sample: float(sample.response == 'x')\n")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "inner.py").write_text("NAME = __name__\n")
    try:
        async with Verifier(resolve(f"{name}.py:check", {}, 60.0, tmp_path)) as verify:
            verdict = await verify(Sample("q"), "x", None)
    finally:
        for left in ("beside", "deeper"):
            sys.modules.pop(left, None)
    assert (verdict.reward, verdict.critique) == (1.0, "later.inner")


async def test_only_the_file_and_what_it_imports_find_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "gmpy2.py").write_text("raise SystemExit('sympy looks for an optional gmpy2')\n")
    (tmp_path / "own.py").write_text(
        "import importlib.util, pkgutil\n"
        "def check(sample, **kwargs):\n"
        "    import sympy\n"
        "    seen = importlib.util.find_spec('gmpy2') is not None\n"
        "    try:\n"
        "        pkgutil.resolve_name('gmpy2')\n"
        "    except ImportError:\n"
        "        return {'reward': float(seen)}\n"
    )
    async with Verifier(resolve("own.py:check", {}, 60.0, tmp_path)) as verify:
        assert (await verify(Sample("q"), "x", None)).reward == 1.0


def test_what_is_taken_out_is_the_current_folder_in_every_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    spellings = ["", ".", "./", "lib/..", str(tmp_path), str(tmp_path / "link")]
    kept = [str(tmp_path / "lib"), "lib", "nowhere", *sys.path]
    monkeypatch.setattr(sys, "path", [*spellings, *kept])
    assert safe_path() == kept
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "lib", "/opt/x"]))
    assert safe_environment()["PYTHONPATH"] == os.pathsep.join(["lib", "/opt/x"])
    assert safe_path() == kept
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # by its full path: the user's word
    assert safe_path() == [str(tmp_path), *kept]


@pytest.mark.long
def test_workers_that_cannot_start_end_the_command_before_a_request(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "2"}')
    (tmp_path / "own.py").write_text(
        "import multiprocessing\n"
        "if multiprocessing.parent_process() is not None:\n"
        "    raise OSError('not in a worker')\n"
        "def check(sample, **kwargs):\n"
        "    return 1.0\n"
    )
    flags = ("--model", "sim", "--dataset", "q.jsonl", "--json")
    ran = run([*COMMAND, "eval", *flags, "--verify", "own.py:check"], tmp_path)
    assert "error: the verify workers cannot start: OSError: not in a worker" in ran.stderr
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    with closing(sqlite3.connect(tmp_path / "grpo-practice.db")) as db:
        assert db.execute("SELECT count(*) FROM calls").fetchone() == (0,)
