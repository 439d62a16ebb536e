"""A folder in which commands are typed, as a user would."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.real.questions import Row
from tests.real.servers import Server

ROOT = Path(__file__).parents[2]
KEY = "${oc.env:UTU_LLM_API_KEY,null}"
HANG_S = 3_600.0
"""Seconds after which a command hangs: a guard, and no test passes or fails by less."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with a database of its own; `python` runs the commands."""

    path: Path
    python: Path = Path(sys.executable)

    def config(self, name: str, exp_id: str, server: Server, **more: Any) -> None:
        """Write NAME.yaml: an agent at this server, and further keys of the config."""
        agent = {
            "model": {
                "model_provider": {
                    "model": server.model,
                    "base_url": server.base_url,
                    "api_key": KEY,
                    "stream": more.pop("stream", False),
                },
                "model_settings": more.pop("settings"),
            },
            "agent": {"instructions": more.pop("instructions")},
        }
        evaluation = {"agent": agent, **more.pop("evaluation")}
        config = {"exp_id": exp_id, **more, "evaluation": evaluation}
        (self.path / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")

    def upload(self, name: str, rows: Sequence[Row]) -> None:
        """Store questions as a dataset."""
        file = self.path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        self.run("data", "upload", file.name, "--name", name)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return subprocess.Popen(
            (self.python, "-m", "grpo_practice", *words),
            cwd=self.path,
            env=os.environ
            | {
                "HF_HUB_OFFLINE": "1",
                "PYTHONPATH": os.pathsep.join(paths),
                "UTU_LLM_API_KEY": "none",  # the servers ask for no key
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command to its end; return what it printed on stdout."""
        process = self.begin(*words)
        try:
            out, err = process.communicate(timeout=HANG_S)
        finally:
            process.terminate()  # Ctrl-C does not reach its session
        assert process.returncode == code, f"{' '.join(words)}: {process.returncode}\n{out}\n{err}"
        return out

    def json(self, *words: str) -> Any:
        """Run a command; return its JSON document."""
        return json.loads(self.run(*words, "--json"))
