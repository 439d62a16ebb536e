"""Does `train` learn? Against a control whose rewards are dealt out to the wrong answers.

python -m bench.weights, where the extra [train] is installed: six trainings of a tiny model, some
minutes. A control differs from its twin in nothing else: same weights, questions, seeds, settings,
and the same rewards in each step.
"""

import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scipy import stats
from tests.train.tiny import tiny_model_folder

from grpo_practice import Workspace
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import runs, scores
from grpo_practice.train.steps import TrainingRun
from grpo_practice.train.work import Answer

SEEDS = (0, 1, 2)
CONFIG = """
exp_id: toy
data: {practice_dataset_name: q.jsonl}
practice: {select_dataset: held.jsonl}
evaluation:
  verify: "score.py:check"
  agent: {agent: {instructions: Answer.}}
  pass_k: 4
train:
  model: base
  prompts_per_step: 8
  group_size: 8
  learning_rate: 3.0e-3
  max_output_tokens: 12
  temperature: 1.0
  lora: null
  steps: 40
  save_every: 40
  eval_every: 40
  device: cpu
"""
SCORE = """
def check(sample):
    said = sample.response
    return sum(c in "0123456789" for c in said) / max(len(said), 1)
"""
_score = TrainingRun.score


async def dealt_out(self: TrainingRun, step: int, answers: Sequence[Answer]) -> list[float | None]:
    """Score as ever, and give the rewards of the step back in another order."""
    rewards = await _score(self, step, answers)
    random.Random(f"{self.seed}|{step}").shuffle(rewards)
    return rewards


def trained(folder: Path, seed: int, *, control: bool) -> dict[str, float]:
    """Train, and return the mean reward of each held-out question."""
    TrainingRun.score = dealt_out if control else _score  # type: ignore[method-assign]
    database = folder / f"{seed}-{'control' if control else 'treated'}.db"
    Workspace(database).train(folder / "toy.yaml", sets=[f"train.seed={seed}"], env={})
    with Store(database) as store:
        (name,) = [row.name for row in store.read(runs.all_runs) if row.kind == "eval"]
        branch = store.read(branches.load, store.read(runs.get, name).head_branch or 0)
        found = store.read(scores.questions, branch)
    return {q.key: q.total / q.n for q in found if q.n}


def within(values: Sequence[float]) -> str:
    """Format a mean with its 95 % interval by t."""
    mean, n = statistics.fmean(values), len(values)
    half = stats.t.ppf(0.975, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return f"{100 * mean:+.1f} points ({100 * (mean - half):+.1f} to {100 * (mean + half):+.1f})"


def main() -> int:
    """Train all six, and print how far treated and control are apart."""
    differences = list[dict[str, float]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "toy.yaml").write_text(CONFIG)
        (folder / "score.py").write_text(SCORE)
        for file, first, n in (("q", 0, 32), ("held", 100, 40)):
            rows = [{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(first, first + n)]
            (folder / f"{file}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        tiny_model_folder(folder / "base")
        for seed in SEEDS:
            treated = trained(folder, seed, control=False)
            control = trained(folder, seed, control=True)
            differences.append({key: treated[key] - control[key] for key in treated})
            print(
                f"seed {seed}: treated {statistics.fmean(treated.values()):.3f}, control"
                f" {statistics.fmean(control.values()):.3f}, difference"
                f" {within(list(differences[-1].values()))} over {len(treated)} questions",
                flush=True,
            )
    means = [statistics.fmean(one.values()) for one in differences]
    print(f"over {len(SEEDS)} seeds: {within(means)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
