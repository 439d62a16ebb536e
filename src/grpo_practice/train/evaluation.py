"""Evaluations of weights during a training run, sampled in its process and stored as runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.config import Loaded
from grpo_practice.config.identity import temperature_of, train_identity_of
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.core.events import RolloutFinished, RolloutStarted, RunStarted
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Library, PlannedStep, Rollout, Sample
from grpo_practice.rollout.evaluate import plan_eval
from grpo_practice.rollout.play import AttemptKey, Player, task_group
from grpo_practice.run.preflight import eval_dataset, unscorable
from grpo_practice.run.session import OpenRun, Session, announced, open_run
from grpo_practice.run.specs import FORMAT, simulated, verifier_record
from grpo_practice.store import datasets
from grpo_practice.store.identity import LIBRARY_SHA, MODEL, WEIGHTS_SHA
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.records import DatasetRow, RolloutPrompt, RunSpec
from grpo_practice.store.run_names import weights_eval_name
from grpo_practice.train.checks import prompts_of
from grpo_practice.train.recipe import settings_of
from grpo_practice.train.steps import trajectory
from grpo_practice.train.work import Answer, Sampling, Selection
from grpo_practice.verify.resolve import VerifyFunction


@dataclass(frozen=True, slots=True)
class WeightsEvaluation:
    """An evaluation on a dataset that can be applied to any checkpoint of a run."""

    session: Session
    loaded: Loaded[PracticeConfig]
    verify: VerifyFunction
    dataset: DatasetRow
    samples: Sequence[Sample]
    """Questions that can be scored, in the order of the dataset."""
    run: str
    """Training run that produced the weights."""
    chooses: bool = True
    """Whether the score selects weights and therefore does not count as a result."""

    @property
    def sampling(self) -> Sampling:
        """Sampling settings; the temperature is the agent's, or else the training temperature."""
        config = self.loaded.config
        own = config.student.model_settings.temperature
        return Sampling(
            attempts=config.evaluation.pass_k,
            temperature=temperature_of(config) if own is None else own,
            max_output_tokens=settings_of(config).max_output_tokens,
        )

    def selection(self, every: int) -> Selection:
        """Return the questions in the form that the training process needs."""
        prompts = prompts_of(self.loaded.config, [sample.question for sample in self.samples])
        return Selection(prompts, self.sampling, every)

    def spec(self, sha: bytes, step: int) -> RunSpec:
        """Return the run that evaluates the weights with this hash, saved after the given step."""
        config = self.loaded.config
        bound = train_identity_of(config)
        sampling = self.sampling
        identity: dict[str, Any] = {
            key.removeprefix("evaluation."): value
            for key, value in bound.items()
            if key.startswith("evaluation.")
        }
        identity |= {
            "agent.type": "simple",
            MODEL: settings_of(config).model,
            "agent.model.model_settings.temperature": sampling.temperature,
            "agent.model.model_settings.max_tokens": sampling.max_output_tokens,
            WEIGHTS_SHA: sha.hex(),
            "data.dataset": self.dataset.name,
            "seed": settings_of(config).seed,
            "verify.sha256": self.verify.sha.hex(),
            LIBRARY_SHA: library_sha(Library()).hex(),
            "format_version": FORMAT,
        }
        judges = [config.judge] if self.verify.is_judge else []
        return RunSpec(
            name=weights_eval_name(self.run, self.dataset.name, sha, chooses=self.chooses),
            exp_id=config.exp_id,
            kind="eval",
            identity=identity,
            config_text=self.loaded.text,
            base_dir=self.loaded.base_dir,
            dataset_id=self.dataset.id,
            verifier=verifier_record(self.verify, config.judge),
            purpose="select" if self.chooses else "test",
            k=sampling.attempts,
            seed=settings_of(config).seed,
            parent_run=self.run,
            parent_step=step,
            simulated=simulated(*judges),
        )

    def is_done(self, sha: bytes, step: int) -> bool:
        """Return whether these weights have answered all questions."""
        run = self.session.store.read(runs.find, self.spec(sha, step).name)
        return run is not None and bool(run.steps) and run.steps_closed == run.steps


def weights_evaluation(
    session: Session,
    loaded: Loaded[PracticeConfig],
    verify: VerifyFunction,
    dataset: str,
    run: str,
) -> WeightsEvaluation:
    """Return the evaluation of a training run's weights on a dataset; nothing is sampled yet.

    Raises:
        DataError: The dataset does not exist.
    """
    data = loaded.config.evaluation.data.model_copy(update={"dataset": dataset})
    row = eval_dataset(session, data, loaded.base_dir)
    bad = unscorable(session.store, row, verify)
    samples = session.store.read(datasets.samples, row.id)
    kept = [sample for at, sample in enumerate(samples) if at not in bad]
    return WeightsEvaluation(session, loaded, verify, row, kept, run)


async def score_weights(
    evaluation: WeightsEvaluation,
    player: Player,
    answers: Sequence[Answer],
    *,
    sha: bytes,
    step: int,
) -> float | None:
    """Score and store the weights' answers, unless already stored; return the mean reward."""
    session, config = evaluation.session, evaluation.loaded.config
    store, spec = session.store, evaluation.spec(sha, step)
    batch, attempts = config.evaluation.batch_size, config.evaluation.pass_k
    plan = plan_eval([s.id for s in evaluation.samples], batch_size=batch, attempts=attempts)
    with open_run(session, spec, lambda _, rows: ([] if rows else plan, [])) as run:
        branch = run.branch
        total = len(answers)
        settled = sum(store.read(scores.settled_counts, branch).values())
        begun = RunStarted(branch.run, branch.id, len(plan), total, settled, spec.simulated)
        with announced(session, begun):
            if settled < total:
                await _play(evaluation, player, run, plan, answers)
        await store.flushed()
        return store.read(scores.mean_score, branch)


async def _play(
    evaluation: WeightsEvaluation,
    player: Player,
    run: OpenRun,
    plan: Sequence[PlannedStep],
    answers: Sequence[Answer],
) -> None:
    config, store = evaluation.loaded.config.evaluation, evaluation.session.store
    branch, batch = run.branch, config.batch_size
    prompt = RolloutPrompt(player.run_seed, config.agent.agent.instructions, None)
    failed = Counter[int]()

    async def scored(answer: Answer) -> None:
        # The plan takes the questions in this order, `batch` of them per step.
        step, slot = divmod(answer.place, batch)
        sample = evaluation.samples[answer.place]
        key = AttemptKey(branch.id, step, 0, slot, answer.attempt, sample)
        run.emit(RolloutStarted(branch.run, step, slot, answer.attempt))
        rollout = Rollout(slot, answer.attempt, sample, trajectory(answer, 0.0))
        rollout = await player.score(rollout, player.scope(key))
        failed[step] += rollout.verdict is None
        run.emit(RolloutFinished.from_rollout(branch.run, step, rollout))
        await store.save_rollout(branch, step, rollout, prompt)

    async with task_group() as tasks:
        for answer in answers:
            tasks.create_task(scored(answer))
    for planned in plan:
        stats = {"planned": planned.rollouts, "failed": failed[planned.step]}
        await store.close_eval(branch, planned.step, stats)
