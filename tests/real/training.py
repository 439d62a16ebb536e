"""Types out the example of docs/train.md and prints its table: `python -m tests.real.training`.

    python -m tests.real.training [--seeds 1] [--steps 8]

For each seed: a training with the real rewards, one with rewards by a coin (`coin.py`), and the
evaluation of both beside the base model on questions that neither was trained on. Then, once: base
and trained model at temperature 0, whole weights instead of LoRA, and a search of two trials. The
rewards of each step are written to `rewards.json`, of which `make pictures` draws the curve.
"""

# ruff: noqa: T201

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.real import install
from tests.real.folder import Folder
from tests.real.questions import capitals, parts
from tests.real.servers import Server, transformers

PLACE = install.FOLDER / "train"
LEARNT = PLACE / "learnt-0-trained/model"
COIN = '''
"""Rewards that say nothing about the answer: the control."""
import hashlib


def coin(sample):
    # With the question: a coin for the response alone can be learnt, and the model then repeats
    # the lucky words.
    drawn = hashlib.sha256(f"{sample.question}\\0{sample.response}".encode()).digest()
    return float(drawn[0] % 2)
'''
TRAIN: Mapping[str, Any] = {
    "model": str(install.WEIGHTS),
    "prompts_per_step": 8,
    "group_size": 8,
    "max_output_tokens": 16,
    "learning_rate": 1.0e-4,
    "lora": {"r": 16},
    "save_every": 4,
}
WHOLE: Mapping[str, Any] = {"lora": None, "learning_rate": 1.0e-5}


def main() -> int:
    """Install what is missing, train, and print the table."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--steps", type=int, default=8)
    given = asked.parse_args()
    python = install.python()
    install.model(python)
    if Path(sys.executable) != python.absolute():
        os.execv(python, (str(python), "-m", "tests.real.training", *sys.argv[1:]))
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE / "coin.py").write_text(COIN, "utf-8")
    folder = Folder(PLACE)
    practise, test, select = parts(capitals(), 32, 48, 13)
    for name, rows in {"train": practise, "test": test, "select": select}.items():
        folder.upload(f"capitals-{name}", rows)
    with transformers(python) as server:
        for seed in range(given.seeds):
            train = {"seed": seed, "steps": given.steps}
            learnt, coin = f"learnt-{seed}", f"coin-{seed}"
            write_config(folder, server, learnt, train=train)
            write_config(folder, server, coin, train=train, verify="coin.py:coin")
            if seed == 0:
                _typed(folder, "train", "--config", f"{learnt}.yaml", "--dry-run")
            _train(folder, learnt)
            _train(folder, coin)
            arms = f"base,{learnt}-trained/agent.yaml,{coin}-trained/agent.yaml"
            _typed(folder, "eval", "--config", f"{learnt}.yaml", "--arms", arms)
        _write_rewards(folder, given.seeds)
        write_config(folder, server, "whole", train={"steps": given.steps, **WHOLE})
        _train(folder, "whole")
        _typed(folder, "eval", "--config", "whole.yaml", "--arms", "base,whole-trained/agent.yaml")
        for name, model in {"cold": server.model, "cold-learnt": LEARNT}.items():
            write_config(folder, replace(server, model=str(model)), name, temperature=0)
            _typed(folder, "eval", "--config", f"{name}.yaml", "-k", "1")
        _typed(folder, "runs", "compare", "cold/eval", "cold-learnt/eval")
        space = {"learning_rate": [3.0e-5, 1.0e-4]}
        write_config(
            folder, server, "tune", train={"steps": -(-given.steps // 2), "tune": {"space": space}}
        )
        _typed(folder, "train", "tune", "--config", "tune.yaml", "--trials", "2")
    return 0


def write_config(folder: Folder, server: Server, name: str, **more: Any) -> None:
    """Write NAME.yaml for an experiment NAME; `more` differs from the example."""
    folder.config(
        name,
        name,
        server,
        settings={"temperature": more.pop("temperature", 0.7), "max_tokens": 16},
        instructions="Answer the question in one short sentence.",
        data={"practice_dataset_name": "capitals-train"},
        practice={"rollout_temperature": 0.7, "select_dataset": "capitals-select"},
        evaluation={
            "verify": more.pop("verify", "contains"),
            "data": {"dataset": "capitals-test"},
            "pass_k": 2,
            "concurrency": 1,  # transformers answers one request at a time
        },
        train={**TRAIN, **more.pop("train", {})},
    )


def _train(folder: Folder, name: str) -> None:
    """Train and export one model."""
    _typed(folder, "train", "--config", f"{name}.yaml")
    target = ("-o", f"{name}-trained", "--force")  # a second run of this example resumes
    _typed(folder, "export-agent", "--run", f"{name}/train", "--merge", *target)


def _write_rewards(folder: Folder, seeds: int) -> None:
    """Write the mean reward of each step of each training, by what gave the rewards."""

    def rewards(name: str) -> list[float]:
        steps = folder.json("runs", "show", f"{name}/train")["steps"]
        return [round(step["stats"]["mean_reward"], 3) for step in steps]

    kinds = ("learnt", "coin")
    found = {kind: [rewards(f"{kind}-{seed}") for seed in range(seeds)] for kind in kinds}
    (PLACE / "rewards.json").write_text(json.dumps(found) + "\n", "utf-8")


def _typed(folder: Folder, *words: str) -> None:
    """Print a command, run it, and print its output and how long it took."""
    print(f"\n$ grpo-practice {' '.join(words)}", flush=True)
    begun = time.monotonic()
    print(folder.run(*words).rstrip())
    print(f"({time.monotonic() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
