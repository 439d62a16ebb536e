"""A trainer without torch: the same calls in the same order, and weights that are a number.

Its answers follow from the weights and the step, and its weights from the rewards, so that a run
that goes on with other weights than it saved, or that counts a step twice, comes out otherwise.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.core.events import Event
from grpo_practice.reports.training import TrainReport
from grpo_practice.store import Store
from grpo_practice.train import job as train_job
from grpo_practice.train import run as train_run
from grpo_practice.train import scoring as train_scoring
from grpo_practice.train.gather import Ranks
from grpo_practice.train.tune_report import TuneReport
from grpo_practice.train.work import (
    MAKING,
    Answer,
    Observer,
    Selection,
    TrainingPlan,
    checkpoint_name,
)

CONFIG = """
exp_id: toy
data: {practice_dataset_name: q.jsonl}
evaluation:
  verify: score.py:check
  agent: {agent: {instructions: Count.}}
  pass_k: 2
train: {model: base, prompts_per_step: 4, group_size: 4, steps: 6, save_every: 2}
"""
SCORE = """
def check(sample):
    text = sample.response
    if "unscorable" in text:
        raise ValueError("no idea")
    return int(text[-1]) / 9
"""
Change = Callable[[int, list[Answer]], list[Answer]]


class KilledError(BaseException):
    """The process is gone."""


@dataclass
class FakeTrainer:
    """The trainer; `kill` ends it before a step is told, as `kill -9` would."""

    kill: int | None = None
    kill_unsaved: int | None = None
    """Step that is stored, and killed before its checkpoint."""
    kill_unscored: int | None = None
    """Step whose checkpoint is saved, and killed before its evaluation."""
    error: Callable[[int], Exception | None] = lambda step: None
    change: Change = lambda step, answers: answers
    loss: Callable[[int], float] = lambda step: 0.5
    stop: int | None = None
    """Step after whose updates a signal comes."""
    trained: list[int] = field(default_factory=list)
    plans: list[TrainingPlan] = field(default_factory=list)
    request_stop: Callable[[], None] = lambda: None

    def __call__(self, plan: TrainingPlan, ranks: Ranks, observer: Observer) -> None:
        self.plans.append(plan)
        epochs = plan.arguments["num_iterations"]
        weights, first = f"base {plan.arguments['learning_rate']}", 0
        if plan.resume is not None:
            weights = (plan.resume / "adapter_model.safetensors").read_text()
            first = json.loads((plan.resume / "trainer_state.json").read_text())["step"] + 1
        total = plan.arguments["max_steps"] // epochs
        for step in range(first, total):
            self.trained.append(step)
            observer.began(step)
            answers = self.change(step, list(self._answers(plan, step, weights)))
            if (error := self.error(step)) is not None:
                raise error
            rewards = observer.score(step, answers)
            weights = _sha(f"{weights}|{rewards}")
            for inner in range(epochs):
                if self.kill == step:
                    raise KilledError
                logs = {"loss": self.loss(step), "grad_norm": 1.0, "learning_rate": 1e-5}
                observer.updated(step, inner, logs)
            if self.stop == step:
                self.request_stop()
                while not observer.stopping():  # the main thread takes it when it comes to it
                    time.sleep(0.01)
            stop, last = observer.stopping(), step == total - 1
            assert plan.save_every is not None, "only a dry run saves nothing"
            due = (step + 1) % plan.save_every == 0 or plan.evaluates(step, last=last)
            if due or stop or last:
                self._save(plan, observer, step, weights, last=last)
            if stop:
                return

    def _answers(self, plan: TrainingPlan, step: int, weights: str) -> Iterator[Answer]:
        size = plan.arguments["num_generations"]
        for slot in range(plan.prompts_per_step):
            for attempt in range(size):
                place = step * plan.prompts_per_step + slot
                digit = int(_sha(f"{weights}|{place}|{attempt}"), 16) % 10
                yield Answer(place, attempt, f"it is {digit}", 10, 4, truncated=digit == 0)

    def _save(
        self, plan: TrainingPlan, observer: Observer, step: int, weights: str, *, last: bool
    ) -> None:
        if self.kill_unsaved == step:
            raise KilledError
        made = plan.checkpoints / MAKING
        made.mkdir(parents=True)
        (made / "adapter_model.safetensors").write_text(weights)
        (made / "adapter_config.json").write_text("{}")
        (made / "optimizer.pt").write_text("moments")
        (made / "trainer_state.json").write_text(json.dumps({"step": step}))
        final = plan.checkpoints / checkpoint_name(step)
        shutil.rmtree(final, ignore_errors=True)
        made.rename(final)
        observer.saved(step, final)
        if self.kill_unscored == step:
            raise KilledError
        if plan.selection is not None and plan.evaluates(step, last=last):
            observer.evaluated(step, evaluated(weights, plan.selection))


def evaluated(weights: str, asked: Selection) -> list[Answer]:
    """The answers of these weights in an evaluation."""
    return [
        Answer(at, n, f"it is {int(_sha(f'{weights}|{at}|{n}'), 16) % 10}", 10, 4, truncated=False)
        for at in range(len(asked.prompts))
        for n in range(asked.sampling.attempts)
    ]


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class TrainProject:
    """A folder with questions, a verify function, a base model of a few bytes and a config."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.db = self.folder / "t.db"
        self.config = self.folder / "c.yaml"
        self.config.write_text(CONFIG)
        (self.folder / "score.py").write_text(SCORE)
        self.base = self.folder / "base"
        self.base.mkdir(exist_ok=True)
        (self.base / "config.json").write_text("{}")
        (self.base / "model.safetensors").write_bytes(b"weights")
        for name, n in (("q", 12), ("s", 3)):
            rows = [{"question": f"{name}{i}?", "answer": str(i)} for i in range(n)]
            text = "\n".join(map(json.dumps, rows))
            (self.folder / f"{name}.jsonl").write_text(text)
        self.workspace = Workspace(self.db)

    def train(self, fake: FakeTrainer | None = None, *sets: str, **options: Any) -> TrainReport:
        """Train with the fake; what needs torch to be looked at is taken as it is."""
        report = self.workspace.train(self.config, sets=sets, **self._options(fake, options))
        assert report is not None
        return report

    def tune(
        self, trials: int, fake: FakeTrainer | None = None, *sets: str, **options: Any
    ) -> TuneReport:
        """Search with the fake, by trials."""
        given = self._options(fake, options)
        return self.workspace.tune(self.config, trials=trials, sets=sets, **given)

    def populate(
        self, members: int, fake: FakeTrainer | None = None, *sets: str, **options: Any
    ) -> TuneReport:
        """Search with the fake, by a population."""
        given = self._options(fake, options)
        return self.workspace.tune(self.config, population=members, sets=sets, **given)

    def _options(self, fake: FakeTrainer | None, options: dict[str, Any]) -> dict[str, Any]:
        def checked(*_: object) -> Path:
            return self.base

        def answers(base: Path, checkpoint: Path, asked: Selection, **_: object) -> list[Answer]:
            """Answer as the weights do while they train."""
            weights = (checkpoint / "adapter_model.safetensors").read_text()
            return evaluated(weights, asked)

        self.monkeypatch.setattr(train_scoring, "answers_of", answers)
        self.monkeypatch.setattr(train_job, "check_installed", lambda: None)
        self.monkeypatch.setattr(train_job, "check_machine", lambda *_: None)
        self.monkeypatch.setattr(train_job, "check_training", checked)
        self.monkeypatch.setattr(train_run, "check_disk", lambda *_, **__: None)
        self.monkeypatch.setattr(train_run, "train", fake or FakeTrainer())
        return {"on_event": self.events.append, "env": {}, **options}

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with Store(self.db) as store:
            return store.read(lambda db: [tuple(row) for row in db.execute(sql, values)])

    def line(self, run: str = "toy/train") -> list[tuple[Any, ...]]:
        """Everything on the run's line that follows from its weights."""
        return self.query(
            """SELECT r.step, r.slot, r.attempt, r.outcome, b.response, r.reward
                 FROM v_rollouts r JOIN rollout_bodies b USING (rollout_id)
                WHERE run_id = ? ORDER BY 1, 2, 3""",
            run,
        )
