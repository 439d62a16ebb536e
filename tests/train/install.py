"""Make the environment of `make train-test`: the extra [train], and what the tests need."""

# ruff: noqa: T201

import subprocess
import sys
import tomllib
from pathlib import Path

ENVIRONMENT = Path(".programs/train")
TORCH = ("torch==2.13.0+cpu", "torch>=2.8")
"""Builds of torch, tried in this order: the CPU's, where somebody offers it, then any."""
TESTS = ("pytest>=9.0", "pytest-xdist>=3.8", "hypothesis>=6.140", "anyio>=4")


def main() -> int:
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    tune = [one for one in extras["tune"] if "[train]" not in one]
    wanted = (*extras["train"], *tune, *project["dependencies"], *TESTS)
    made, python = ENVIRONMENT / "requires.txt", ENVIRONMENT / "bin/python"
    if made.is_file() and made.read_text() == "\n".join(wanted):
        return 0
    print(f"installing torch, TRL and PEFT into {ENVIRONMENT}, once: minutes, and gigabytes")
    subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    if subprocess.run([*pip, TORCH[0]], check=False).returncode:
        subprocess.run([*pip, TORCH[1]], check=True)
    subprocess.run([*pip, *wanted], check=True)
    made.write_text("\n".join(wanted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
