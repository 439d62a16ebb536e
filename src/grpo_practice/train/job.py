"""A prepared training run: everything that it names has been found and checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_practice.config import Loaded
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.core.types import PlannedStep
from grpo_practice.run.preflight import (
    check_plan,
    dataset_of,
    scorable,
    session_of,
    verify_function,
)
from grpo_practice.run.session import Session, StepStop
from grpo_practice.run.weights import weights_sha
from grpo_practice.store import datasets
from grpo_practice.store.identity import ORIGIN, POPULATION
from grpo_practice.store.records import Branch, DatasetRow, Purpose, RunSpec, StepRow
from grpo_practice.store.run_names import train_name
from grpo_practice.train.checks import (
    check_installed,
    check_machine,
    check_training,
    steps_planned,
)
from grpo_practice.train.config import train_config
from grpo_practice.train.evaluation import WeightsEvaluation, weights_evaluation
from grpo_practice.train.gather import Ranks
from grpo_practice.train.recipe import batch_shape, settings_of
from grpo_practice.train.requests import TrainRequest, TuneRequest
from grpo_practice.train.resume import Origin
from grpo_practice.train.spec import train_spec
from grpo_practice.verify.resolve import VerifyFunction


@dataclass(frozen=True, slots=True)
class TrainJob:
    """A prepared training run: everything that it names has been found and checked."""

    session: Session
    loaded: Loaded[PracticeConfig]
    dataset: DatasetRow
    sample_ids: list[int]
    verify: VerifyFunction
    model: Path
    """Folder of the base model."""
    model_sha: bytes
    ranks: Ranks
    name: str
    selects: WeightsEvaluation | None = None
    """Evaluation during training; None without `eval_every`."""
    every: int = 0
    """Number of steps between these evaluations."""
    on_score: Callable[[int, float], bool] | None = None
    """Callback for each of these evaluations, with step and mean reward; returns True to end the
    run.
    """
    population: str | None = None
    """How members of a population are compared, in words; None if the run is not part of one."""
    origin: Origin | None = None
    """Checkpoint of another population member that this run took its weights from."""

    @property
    def config(self) -> PracticeConfig:
        """Configuration of the run."""
        return self.loaded.config

    @property
    def spec(self) -> RunSpec:
        """Run to be recorded."""
        spec = train_spec(self.loaded, self.verify, self.dataset, self.model_sha)
        keys = {POPULATION: self.population, ORIGIN: self.origin and self.origin.text}
        own = {key: value for key, value in keys.items() if value is not None}
        purpose: Purpose = "train" if self.name == spec.name else "trial"
        identity = {**spec.identity, **own}
        return replace(spec, name=self.name, purpose=purpose, identity=identity)


def prepare_train(
    session: Session, request: TrainRequest | TuneRequest, name: str | None = None
) -> TrainJob:
    """Return the job; no weights have been loaded and no run has been recorded yet.

    `name` is the name of the run; by default it is derived from the experiment.

    Raises:
        ConfigError: The configuration, the machine, the base model or the verify function cannot be
            used.
        DataError: A dataset is missing, or a gold answer cannot be scored.
    """
    loaded = train_config(session.store, request)
    config, folder = loaded.config, loaded.base_dir
    name = name or train_name(config.exp_id)
    session = session_of(session, request, loaded, name)
    ranks = Ranks.of_environment()
    batch_shape(settings_of(config), ranks.count)
    verify = verify_function(session, None, config.evaluation.verify, folder)
    if verify.is_judge and not config.judge.model_provider.model:
        raise ConfigError(
            f"verify {verify.name} needs a judge, but no judge model is named",
            hint="set JUDGE_LLM_MODEL (for instance in .env), or judge_model of the evaluation",
        )
    dataset = dataset_of(session, config.data.practice_dataset_name, folder)
    ids, notice = scorable(session.store, dataset, verify, config.practice)
    if notice:
        session.notice(notice)
    samples = session.store.read(datasets.samples, dataset.id)
    check_installed()
    check_machine(settings_of(config), ranks.count)
    model = check_training(config, folder, [sample.question for sample in samples])
    # Hashing a large model takes minutes, and a forecast does not need the hash.
    sha = b"" if session.only_looks else weights_sha(model)
    # A step cannot be resumed midway, so the first signal stops only after the step.
    session = replace(session, step_stop=StepStop())
    job = TrainJob(session, loaded, dataset, ids, verify, model, sha, ranks, name)
    every = settings_of(config).eval_every
    return selecting(job, every) if every else job


def selecting(job: TrainJob, every: int) -> TrainJob:
    """Return the job with evaluations on `practice.select_dataset` during training.

    Raises:
        ConfigError: The configuration names no such dataset.
        DataError: The dataset does not exist.
    """
    dataset = job.config.practice.select_dataset
    if dataset is None:
        raise ConfigError(
            "practice.select_dataset is not set: there are no questions to select weights with",
            hint="--set practice.select_dataset=NAME, with questions not used for evaluation",
        )
    found = weights_evaluation(job.session, job.loaded, job.verify, dataset, job.name)
    return replace(job, selects=found, every=every)


def planned(
    job: TrainJob, branch: Branch, rows: Sequence[StepRow]
) -> tuple[list[PlannedStep], list[str]]:
    """Return the planned steps, made from the run's original samples, and any notices.

    Raises:
        FingerprintError: A sample is missing, or fewer steps are requested than planned.
    """
    own = [row.plan for row in rows if row.branch_id == branch.id]
    played = sorted({i for plan in own for i, _ in plan.slots})
    notices = check_plan(job.session.store, branch, job.dataset, played)
    ids = job.sample_ids
    if branch.dataset_id != job.dataset.id:
        was = job.session.store.read(datasets.by_id, branch.dataset_id)
        ids, _ = scorable(job.session.store, was, job.verify, job.config.practice)
    plan = steps_planned(job.config, ids)
    if len(plan) < len(rows):
        raise FingerprintError(
            f"{branch.run} has {len(rows)} steps planned; their number can only grow",
            [ChangedKey("train.steps", len(rows), len(plan))],
            hint="undo the change, or give the run another exp_id",
        )
    return plan, notices
