"""The commands of the README, typed one after the other."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ELSEWHERE = {
    "make demo": "run by tests/cli, as `grpo-practice demo`",
    "make test": "this very run",
    "pipx install grpo-practice": "make release installs the wheel into an empty environment",
    "uv tool install grpo-practice": "the same",
    "pip install .": "the same",
}
"""Commands that a test cannot run, and where they are run."""
SERVED = "grpo-practice serve --agent enhanced.yaml --port 8400"
THERE = {SERVED: "tests/contract/serve/test_serve.py"}
"""Commands that need services of their own, and where they are run."""

_FILE = re.compile(r"^`(\w+\.yaml)`\n\n```yaml\n(.*?)```", re.MULTILINE | re.DOTALL)


def commands(*pages: Path, kinds: str = "sh") -> list[str]:
    text = "".join(page.read_text("utf-8") for page in pages)
    blocks = re.findall(rf"```(?:{kinds})\n(.*?)```", text, re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def type_commands(
    pages: Sequence[Path], folder: Path, run: Callable[[list[str], Path], str]
) -> int:
    """Type the commands of these pages, from this folder on; return their number.

    Args:
        pages: Pages whose commands need the project that the README begins.
        folder: An empty folder.
        run: Runs a command in a folder and returns what it printed.
    """
    made = "L7"  # the library that the last edit made, which the README calls L7
    script = [c for c in commands(*pages) if c not in ELSEWHERE | THERE and "--serve" not in c]
    for command in script:
        assert not set("|&;<>$`") & set(command), f"only a shell runs {command}"
        words = shlex.split(re.sub(r"\bL7\b", made, command))
        if words[0] == "cd":
            folder /= words[1]
            for text, name in re.findall(r"^(agent: .*)  # (\w+\.yaml)$", README.read_text(), re.M):
                (folder / name).write_text(f"{text}\n", "utf-8")
            for page in pages:
                for name, text in _FILE.findall(page.read_text("utf-8")):
                    (folder / name).write_text(text, "utf-8")
            continue
        shown = run(words, folder)
        if edited := re.match(r"(L\d+): \d+ experiences; ", shown):
            made = edited[1]
        assert "rollouts is such" not in shown, (command, shown)
    return len(script)
