"""A training of the tiny model as a user starts it: a folder, a command, a process."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.train.tiny import tiny_model_folder

SOURCES = Path(__file__).parents[2] / "src"
CONFIG = """
exp_id: toy
data: {practice_dataset_name: q.jsonl}
evaluation:
  verify: "score.py:check"
  agent: {agent: {instructions: Answer.}}
train:
  model: base
  prompts_per_step: 4
  group_size: 4
  update_epochs: 2
  learning_rate: 1.0e-2
  max_output_tokens: 8
  temperature: 1.0
  lora: {r: 4, alpha: 8}
  steps: 8
  save_every: 2
  device: cpu
"""
SCORE = """
def check(sample):
    said = sample.response
    return sum(c in "0123456789" for c in said) / max(len(said), 1)
"""


@dataclass
class RealProject:
    """A folder with a tiny model, sixteen questions, a verify function and a config."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.db = self.folder / "t.db"
        (self.folder / "toy.yaml").write_text(CONFIG)
        (self.folder / "score.py").write_text(SCORE)
        rows = [{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(16)]
        (self.folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
        if not (self.folder / "base").exists():
            tiny_model_folder(self.folder / "base")

    def begin(
        self, *more: str, ranks: int = 1, words: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        """Start `train`, in a process group of its own."""
        train = ("train", "--config", "toy.yaml", "--db", "t.db", *more)
        if ranks > 1:
            start = (sys.executable, "-m", "torch.distributed.run", "--standalone")
            command = (*start, f"--nproc-per-node={ranks}", "-m", "grpo_practice", *train)
        else:
            command = (sys.executable, *words, "-m", "grpo_practice", *train)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def train(self, *more: str, ranks: int = 1) -> tuple[int, str]:
        """Run `train` to its end; return the exit code and all that it said."""
        process = self.begin(*more, ranks=ranks)
        said, _ = process.communicate(timeout=200)
        return process.returncode, said

    def command(self, *words: str) -> tuple[int, str]:
        """Run another command on the database; return its exit code and all that it said."""
        ran = subprocess.run(
            (sys.executable, "-m", "grpo_practice", *words, "--db", "t.db"),
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def weights(self) -> dict[int, str]:
        """Step → hash of the adapter of its newest checkpoint."""
        found = sorted(self.folder.glob("t.db.train/*/b*/step-*/adapter_model.safetensors"))
        by_age = sorted(found, key=lambda path: path.stat().st_mtime)
        return {
            int(path.parent.name.partition("-")[2]): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in by_age
        }

    def rows(self) -> dict[str, list[Any]]:
        """What is on the run's line, but for times."""
        with closing(sqlite3.connect(self.db)) as db:
            return {
                "rollouts": db.execute(
                    """SELECT r.step, r.slot, r.attempt, r.outcome, b.response, r.reward
                         FROM v_rollouts r JOIN rollout_bodies b USING (rollout_id)
                        WHERE run_id = 'toy/train' ORDER BY 1, 2, 3"""
                ).fetchall(),
                "updates": db.execute(
                    """SELECT u.step, u.inner, u.loss, u.grad_norm, u.clip_low, u.clip_high
                         FROM v_steps s JOIN updates u USING (branch_id, step)
                        WHERE run_id = 'toy/train' ORDER BY 1, 2"""
                ).fetchall(),
            }


def environment() -> dict[str, str]:
    """Return variables that keep every library at home and on two cores."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("UTU_", "OPENAI_"))},
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(SOURCES),
        "PYTHONUNBUFFERED": "1",
    }


def wait_for(path: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    """Wait until a file of this pattern is there, or the process has ended."""
    while process.poll() is None and not any(path.glob(pattern)):
        time.sleep(0.005)


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGKILL) -> str:
    """Send a signal to the process alone; return all that it said."""
    if process.poll() is None:
        os.kill(process.pid, number)
    said, _ = process.communicate(timeout=200)
    return said
