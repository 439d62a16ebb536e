"""What the README says is true: its commands run, its reference is the generated one."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_practice.config.reference import reference_markdown
from tests.workflows.play import MATH, WEB

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ELSEWHERE = {
    "make demo": "run by tests/cli, as `grpo-practice demo`",
    "make test": "this very run",
    "pip install .": "make wheel installs the wheel into an empty environment",
}
"""Commands that a test cannot run, and where they are run."""
SERVED = "grpo-practice serve --agent enhanced.yaml --port 8400"
THERE = {**dict.fromkeys((*MATH, *WEB), "tests/workflows"), SERVED: "tests/serve"}
"""Commands that need services of their own, and where they are run."""


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def test_every_command_runs_in_the_order_it_is_shown(tmp_path: Path) -> None:
    script = [c for c in commands() if c not in ELSEWHERE | THERE and "--serve" not in c]
    assert len(script) > 15
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("UTU_", "OPENAI_", "JUDGE_"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "UTU_LLM_MODEL": "sim",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-exc", "\n".join(script)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "my-agent" / "enhanced.yaml").exists()


def test_what_cannot_be_run_here_is_run_elsewhere() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for command in ELSEWHERE:
        assert command in commands()
        name = command.split()[1]
        assert command.startswith("pip") or re.search(rf"^{name}:", makefile, re.MULTILINE)
    assert set(commands()) > set(THERE)


def test_the_served_simulation_answers() -> None:
    (command,) = [c for c in commands() if "--serve" in c]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    words = command.replace("8377", str(port)).split()[1:]
    server = subprocess.Popen(
        [sys.executable, "-m", "grpo_practice", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        pytest.fail("nothing listened")
    finally:
        server.terminate()
        server.wait()


def test_the_reference_is_the_generated_one() -> None:
    """`python -m tests.test_readme` writes it anew."""
    assert README.read_text("utf-8") == with_reference()


def with_reference() -> str:
    text = README.read_text("utf-8")
    before, _, rest = text.partition("<!-- reference -->\n")
    _, _, after = rest.partition("<!-- /reference -->")
    return f"{before}<!-- reference -->\n{reference_markdown()}<!-- /reference -->{after}"


if __name__ == "__main__":
    README.write_text(with_reference(), "utf-8")
