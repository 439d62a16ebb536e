"""Install each extra in an environment of its own, and run a command that needs it.

`python -m tests.extras NAME…` takes these alone. The training extras need several gigabytes.
"""

# ruff: noqa: T201

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.contract.receiver import collecting
from tests.data.hub import made
from tests.data.hub.server import hub

ROOT = Path(__file__).parents[1]
SHOP = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("shop")
@server.tool()
def in_stock(fruit: str) -> int:
    "How many pieces of a fruit there are."
    return 3
server.run("stdio")
"""
TOOLS = """
exp_id: tools
data: {dataset: mine}
verify: contains
agent:
  type: simple
  model: {model_provider: {model: sim}}
  agent: {name: clerk}
  toolkits: {shop: {mode: mcp, config: {command: PYTHON, args: [shop.py]}}}
"""
RAY = """
exp_id: cluster
agent:
  type: python
  function: my_agent.py:solve
  executor: ray
  ray: {address: local}
  agent: {name: checker}
data: {dataset: mine}
verify: contains
"""
TRAIN = """
exp_id: tiny
data: {practice_dataset_name: mine-train}
practice: {select_dataset: mine-select}
evaluation: {verify: contains, data: {dataset: mine-test}}
train:
  model: ./tiny
  prompts_per_step: 2
  group_size: 2
  steps: 1
  max_output_tokens: 8
  tune: {space: {beta: [0, 0.01]}}
"""
COMMANDS: dict[str, tuple[str, ...]] = {
    "mcp": ("doctor", "--run", "--config", "tools.yaml"),
    "hub": ("data", "download", "AIME24"),
    "parquet": ("data", "upload", "rows.parquet", "--name", "rows"),
    "trace": ("runs", "trace", "mine"),
    "ray": ("config", "validate", "--config", "cluster.yaml"),
    "train": ("train", "--config", "tiny.yaml", "--dry-run"),
    "tune": ("train", "tune", "--config", "tiny.yaml", "--trials", "2"),
}


def main(names: list[str]) -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(COMMANDS) == set(project["optional-dependencies"])
    failed = [name for name in names or COMMANDS if not _works(name)]
    return 1 if failed else 0


def _works(name: str) -> bool:
    with tempfile.TemporaryDirectory() as folder, _services(Path(folder)) as services:
        env = Path(folder) / "environment"
        subprocess.run([sys.executable, "-m", "venv", env], check=True)
        pip = (env / "bin/pip", "install", "-q", "--disable-pip-version-check")
        subprocess.run([*pip, f"{ROOT}[{name}]"], check=True)
        python = env / "bin/python"
        work = Path(folder) / "work"
        work.mkdir()
        _write(work, python)
        if name in ("train", "tune"):
            code = "from pathlib import Path; from tests.train.tiny import tiny_model_folder as m"
            make = [str(python), "-c", f"{code}; m(Path('{work}/tiny'))"]
            subprocess.run(make, check=True, cwd=ROOT)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("UTU_", "PYTHON"))}
        settings = {"UTU_LLM_MODEL": "sim", **inherited, **services}
        first = ("data", "upload", "mine.jsonl", "--name", "mine")
        plays = ("eval", "--config", "practice.yaml", "--exp-id", "mine", "--dataset", "mine")
        split = ("data", "split", "mine", "--into", "train=0.8,select=0.1,test=0.1")
        for words in (("init", "."), first, split, (*plays, "--limit", "2"), COMMANDS[name]):
            typed = [str(env / "bin/grpo-practice"), *words]
            done = subprocess.run(typed, cwd=work, env=settings, text=True, capture_output=True)
            if done.returncode:
                print(f"{name} | FAILED | {' '.join(words)}\n{done.stdout}{done.stderr}")
                return False
        size = sum(file.stat().st_size for file in env.rglob("*") if file.is_file())
        print(f"{name} | {' '.join(COMMANDS[name])} | {size / 1e6:,.0f} MB", flush=True)
        return True


@contextmanager
def _services(folder: Path) -> Iterator[Mapping[str, str]]:
    """Serve a hub and a collector on loopback; yield the variables that lead to them."""
    with hub() as datasets, collecting() as collector:
        datasets.add(made.REPOS["AIME24"], made.aime([("1+1?", "2"), ("2+2?", "4")]))
        yield {**datasets.env(folder / "hub"), "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}


def _write(work: Path, python: Path) -> None:
    texts = {
        "shop.py": SHOP,
        "tools.yaml": TOOLS.replace("PYTHON", str(python)),
        "cluster.yaml": RAY,
        "my_agent.py": "async def solve(question, system, context):\n    return question\n",
        "tiny.yaml": TRAIN,
    }
    for name, text in texts.items():
        (work / name).write_text(text, "utf-8")
    files = made.aime([("1+1?", "2"), ("2+2?", "4")])
    (rows,) = [body for name, body in files.items() if name.endswith(".parquet")]
    (work / "rows.parquet").write_bytes(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
