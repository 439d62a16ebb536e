"""Print the table: a row for each program, what was tried and what came of it.

`python -m tests.programs NAME…` takes these alone. Each installs what it needs, once, below
`.programs/`.
"""

# ruff: noqa: T201

import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

LIBRARIES = (
    "openai_agents",
    "langchain",
    "llama_index",
    "dspy",
    "crewai",
    "autogen",
    "ag2",
    "pydantic_ai",
    "smolagents",
    "haystack",
    "semantic_kernel",
    "litellm",
)
SERVERS = ("mcp_servers", "mcp_sqlite", "mcp_memory")
PROGRAMS = ("reference", *LIBRARIES, *SERVERS)
TRAINERS = ("trl",)
"""Programs of several gigabytes, which are tried where they are named."""
ENVIRONMENTS = Path(".programs")


def main(names: list[str]) -> int:
    failed = 0
    for name in names or PROGRAMS:
        program = import_module(f"tests.programs.{name}")
        python = _environment(name, program.REQUIRES)
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"{name} | ok | {program.check(python, Path(folder))}", flush=True)
            except (AssertionError, subprocess.CalledProcessError) as e:
                failed += 1
                print(f"{name} | FAILED | {e}", flush=True)
    return 1 if failed else 0


def _environment(name: str, requires: tuple[str, ...]) -> Path:
    folder = ENVIRONMENTS / name
    python, made = folder.absolute() / "bin/python", folder / "requires.txt"
    wanted = "\n".join(requires)
    if not made.is_file() or made.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        if requires:
            subprocess.run([python, "-m", "pip", "install", "-q", *requires], check=True)
        made.write_text(wanted)
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
