"""Every file and command of docs/agents.md and docs/clusters.md works, in the order shown."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.processes import HANG_S

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / name).read_text("utf-8") for name in ("agents.md", "clusters.md"))
BLOCK = re.compile(r"(?:^`([\w.]+)`\n\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

INSTALL = re.compile(r"^pip install (.*)\n", re.MULTILINE)
"""Not run: here it is all there."""


def script() -> str:
    """The pages as one shell script: files are written where they are shown."""
    parts = []
    for name, kind, text in BLOCK.findall(PAGES):
        assert bool(name) != (kind == "sh"), f"a block of {kind} without a name"
        parts.append(f"cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE\n" if name else text)
    return INSTALL.sub("", "\n".join(parts))


def test_what_the_page_installs_is_what_its_files_import() -> None:
    told, extra = INSTALL.findall(PAGES)
    assert extra == "'grpo-practice[ray]'"
    assert set(told.split()) == {"openai", "openai-agents"}
    assert all(distribution(name) for name in told.split())  # so the page can be run here
    assert "pip install" not in script()


@pytest.mark.long
def test_the_page_runs(tmp_path: Path) -> None:
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("UTU_", "OPENAI_", "JUDGE_"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-exc", script()],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "error" not in done.stdout, done.stdout
    assert done.stdout.count("120 scored of 120 planned (coverage 100.0 %)") == 4
    assert "15 of 15" in done.stdout
    assert (tmp_path / "my-agent" / "enhanced.yaml").read_text("utf-8").count("my_agent.py:solve")
