"""A command imports what it needs: most of the time until it does something is imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Gp

SLOW = "aiohttp httpx genai_prices sqlite_utils math_verify sympy numpy scipy"
CODE = """
import sys
from grpo_practice.main import run
code = run(sys.argv[2:])
print(code, *(m for m in sys.argv[1].split() if m in sys.modules), file=sys.stderr)
"""
COUNT = """
import sys
from grpo_practice.main import run
run(sys.argv[1:])
print(sum(m.startswith("grpo_practice") for m in sys.modules), file=sys.stderr)
"""
CONFIG = """
exp_id: toy
data: {practice_dataset_name: tasks}
evaluation:
  verify: math
  data: {dataset: tasks}
  agent:
    agent: {name: a, instructions: Add.}
    model: {model_provider: {model: m, base_url: "http://127.0.0.1:9/v1", api_key: EMPTY}}
"""


def imported(modules: str, *words: str) -> str:
    """The exit code, and which of these modules the command imported."""
    command = [sys.executable, "-c", CODE, modules, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1]


def count_of_ours(*words: str) -> int:
    """The number of modules of this package that the command imported."""
    command = [sys.executable, "-c", COUNT, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stderr.splitlines()[-1])


def test_help_needs_neither_pydantic_nor_rich() -> None:
    assert imported(f"pydantic rich yaml jinja2 asyncio sqlite3 {SLOW}", "--help") == "0"


REPORTS = "grpo_practice.reports.run_reports grpo_practice.reports.comparison"


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "unused"), [("practice", f"jinja2 {REPORTS}"), ("eval", "jinja2")]
)
def test_a_dry_run_imports_nothing_that_sends_grades_or_migrates(
    gp: Gp, tmp_path: Path, command: str, unused: str
) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG, "utf-8")
    (tmp_path / "tasks.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n' * 3, "utf-8")
    assert gp("data", "upload", "tasks.jsonl", "--name", "tasks").code == 0
    forecast = (command, "--config", "c.yaml", "--dry-run")
    assert imported(f"{unused} {SLOW}", *forecast) == "0"
    assert count_of_ours(*forecast) <= 290


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "most"), [("runs list", 150), ("experiences list", 145), ("runs show demo", 155)]
)
def test_a_command_that_reads_imports_no_more_than_it_needs(
    demo: Gp, command: str, most: int
) -> None:
    unused = "pydantic jinja2 yaml asyncio grpo_practice.config grpo_practice.core.events"
    numbers = "numpy" if command.startswith("runs show") else ""  # for the bootstrap
    code, *found = imported(f"{unused} {SLOW}", *command.split()).split()
    assert (code, " ".join(found)) == ("0", numbers)
    assert count_of_ours(*command.split()) <= most
