"""Install the wheel in `dist/` into an empty environment, and type the README's commands there."""

# ruff: noqa: T201

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from grpo_practice import __version__
from tests.readme import README, type_commands


def main() -> None:
    (wheel,) = Path("dist").glob(f"grpo_practice-{__version__}-*.whl")
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "environment"
        subprocess.run([sys.executable, "-m", "venv", made], check=True)
        subprocess.run([made / "bin/pip", "install", "-q", wheel], check=True)
        subprocess.run([made / "bin/pip", "check"], check=True)
        mine = ("UTU_", "OPENAI_", "JUDGE_", "PYTHON")
        env = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
        env |= {"UTU_LLM_MODEL": "sim", "PATH": f"{made / 'bin'}{os.pathsep}{env['PATH']}"}

        def run(words: list[str], folder: Path) -> str:
            print("$", *words, flush=True)
            done = subprocess.run(words, cwd=folder, env=env, text=True, capture_output=True)
            if done.returncode:
                sys.exit(f"{done.stdout}{done.stderr}exit code {done.returncode}")
            return done.stdout

        folder = Path(name) / "work"
        folder.mkdir()
        assert run(["grpo-practice", "--version"], folder).split() == ["grpo-practice", __version__]
        n = type_commands([README], folder, run)
        print(f"{wheel.name}: {n} commands of the README work in an environment with nothing else")


if __name__ == "__main__":
    main()
