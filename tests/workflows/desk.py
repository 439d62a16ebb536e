"""A folder at which somebody types the commands of a workflow."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.workflows.services import Services

PROGRAM = "grpo-practice"
STRANGERS = ("UTU_", "JUDGE_", "OPENAI_", "SERPER_", "JINA_", "HF_", "GRPO_PRACTICE_")
LIMIT_S = 240


@dataclass
class Desk:
    """A folder with a `.env`, and the services it names."""

    folder: Path
    services: Services
    typed: list[str] = field(default_factory=list)
    """The commands, in order."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        env = self.folder / ".env"
        env.write_text("".join(f"{k}={v}\n" for k, v in self.services.env.items()), "utf-8")
        env.chmod(0o600)

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(STRANGERS)}
        hub = self.services.hub.env(self.folder / "hub-cache")
        return {**kept, **hub, "NO_COLOR": "1", "COLUMNS": "110"}

    def start(self, command: str) -> subprocess.Popen[str]:
        program, *words = shlex.split(command)
        assert program == PROGRAM
        self.typed.append(command)
        return subprocess.Popen(
            [sys.executable, "-m", "grpo_practice", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, command: str, code: int = 0) -> tuple[str, str]:
        """What it prints on stdout and stderr."""
        with self.start(command) as process:
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == code, f"{command}\n{out}\n{err}"
        return out, err

    def json(self, command: str, code: int = 0) -> Any:
        return json.loads(self.type(f"{command} --json", code)[0])

    def kill_when(self, command: str, far_enough: Callable[["Desk"], bool]) -> None:
        """The command is typed, and ended by `kill -9` as soon as it is far enough."""
        until = time.monotonic() + LIMIT_S
        with self.start(command) as process:
            while not far_enough(self):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        path = self.folder / "grpo-practice.db"
        if not path.exists():
            return []
        db = sqlite3.connect(path)
        try:
            return db.execute(sql, values).fetchall()
        finally:
            db.close()

    def calls(self, run: str = "%") -> dict[str, int]:
        """Answered calls that are stored: by stage, and tools by name."""
        rows = self.query(
            "SELECT CASE role WHEN 'tool' THEN name ELSE stage END, count(*) FROM calls"
            " JOIN branches USING (branch_id) WHERE run_id LIKE ? GROUP BY 1 ORDER BY 1",
            run,
        )
        return {str(name): int(n) for name, n in rows}


def commands_of(text: str) -> list[str]:
    """The commands in the `sh` blocks of a Markdown text, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(PROGRAM)]
