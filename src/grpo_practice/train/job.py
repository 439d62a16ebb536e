"""A prepared training run: everything that it names has been found and checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grpo_practice.config import Loaded, load_practice
from grpo_practice.config.identity import train_identity_of
from grpo_practice.config.reading.discover import config_here
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.core.types import PlannedStep
from grpo_practice.run.batched_runs import no_batches
from grpo_practice.run.configs import config_file, stored_text, unnamed
from grpo_practice.run.preflight import (
    check_plan,
    dataset_of,
    scorable,
    session_of,
    verify_function,
)
from grpo_practice.run.session import Session, StepStop
from grpo_practice.run.specs import FORMAT, simulated, verifier_record
from grpo_practice.run.weights import weights_sha
from grpo_practice.store import Store, datasets
from grpo_practice.store.identity import MODEL_SHA, ORIGIN, POPULATION
from grpo_practice.store.queries import runs
from grpo_practice.store.records import Branch, DatasetRow, Purpose, RunSpec, StepRow
from grpo_practice.store.run_names import train_name
from grpo_practice.store.trained_steps import checkpoints_root
from grpo_practice.train.checks import (
    check_installed,
    check_machine,
    check_training,
    lora_arguments,
    prompts_of,
    steps_planned,
)
from grpo_practice.train.evaluation import WeightsEvaluation, weights_evaluation
from grpo_practice.train.gather import Ranks
from grpo_practice.train.recipe import batch_shape, grpo_arguments, settings_of
from grpo_practice.train.requests import TrainRequest, TuneRequest
from grpo_practice.train.resume import Origin, StartingPoint
from grpo_practice.train.rewards import skips_uniform
from grpo_practice.train.work import MAKING, TrainingPlan
from grpo_practice.verify.resolve import VerifyFunction
from grpo_practice.verify.verifier import without_rollout


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
    # Called only for its error, so that a step that cannot be divided is reported before the model
    # is looked for.
    batch_shape(settings_of(config), ranks.count)
    verify = verify_function(session, None, config.evaluation.verify, folder)
    if verify.is_judge and not config.judge.model_provider.model:
        raise ConfigError(
            f"verify {verify.name} needs a judge, but no judge model is named",
            hint="set JUDGE_LLM_MODEL (for instance in .env), or judge_model of the evaluation",
        )
    if verify.is_judge and config.judge.model_provider.batch:
        raise no_batches(config.judge, "an update of the weights needs the rewards of its rollouts")
    if verify.needs_rollout:
        raise without_rollout(verify.name)
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
            "practice.select_dataset is not set, so there are no questions to select weights with",
            hint="--set practice.select_dataset=NAME, a dataset that is not used for evaluation",
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
    planned_ids = sorted({i for plan in own for i, _ in plan.slots})
    notices = check_plan(job.session.store, branch, job.dataset, planned_ids)
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


def train_spec(
    loaded: Loaded[PracticeConfig],
    verify: VerifyFunction,
    dataset: DatasetRow,
    model_sha: bytes,
) -> RunSpec:
    """Return the training run for this configuration, starting from base weights with this hash."""
    config = loaded.config
    judges = [config.judge] if config.evaluation.verify.may_ask else []
    return RunSpec(
        name=train_name(config.exp_id),
        exp_id=config.exp_id,
        kind="train",
        identity=train_identity_of(config)
        | {
            MODEL_SHA: model_sha.hex(),
            "verify.sha256": verify.sha.hex(),
            "format_version": FORMAT,
        },
        config_text=loaded.text,
        base_dir=loaded.base_dir,
        dataset_id=dataset.id,
        verifier=verifier_record(verify, config.judge),
        purpose="train",
        k=settings_of(config).group_size,
        base_model=settings_of(config).model,
        simulated=simulated(*judges),
    )


def train_config(store: Store, request: TrainRequest | TuneRequest) -> Loaded[PracticeConfig]:
    """Return the requested configuration; without one, that of the latest training run.

    Raises:
        ConfigError: There is no configuration, or it cannot be used.
    """
    env, overrides = request.environment(), request.changes
    if request.config is not None:
        return load_practice(config_file(request.config, "practice"), overrides, env, trains=True)
    latest = store.read(runs.latest, ["train"], to_play=True)
    if latest is not None and latest.purpose == "trial":
        raise ConfigError(
            f"the latest training run, {latest.name}, is a trial of a search, with settings of"
            " its own; name a config with --config",
            hint=f"for instance the file that the search of {latest.exp_id} was started with",
        )
    stored = stored_text(store, latest.name) if latest else None
    if stored is not None:
        return load_practice(stored, overrides, env, trains=True)
    if (here := config_here("practice")) is not None:
        return unnamed(load_practice(here, overrides, env, trains=True), here, "practice")
    raise ConfigError(
        "there is no training run to resume; name a config with --config",
        hint="`grpo-practice init my-task` writes a config to start from",
    )


def plan_of(
    job: "TrainJob",
    planned: Sequence[PlannedStep],
    folder: Path,
    start: StartingPoint | None = None,
) -> TrainingPlan:
    """Return the work of all ranks; checkpoints are saved below `folder`.

    The trainer skips the steps before the start. They are filled with empty questions, as many as a
    step has now, because earlier steps may have had more or fewer.
    """
    config, settings = job.config, settings_of(job.config)
    read = partial(job.session.store.read, datasets.samples_of)
    first = start.step if start else 0
    passed = [""] * first * settings.prompts_per_step
    left = [plan for plan in planned if plan.step >= first]
    questions = [*passed, *(sample.question for plan in left for sample in read(plan))]
    shape = batch_shape(settings, job.ranks.count)
    making = str(folder / MAKING)
    return TrainingPlan(
        arguments=grpo_arguments(config, shape, steps=len(planned), folder=making),
        lora=None if settings.lora is None else lora_arguments(settings.lora),
        model=job.model,
        prompts=prompts_of(config, questions),
        prompts_per_step=settings.prompts_per_step,
        save_every=settings.save_every,
        checkpoints=folder,
        resume=start.folder if start else None,
        seed=settings.seed,
        scale_rewards=settings.scale_rewards,
        skip_uniform=skips_uniform(settings),
        device=settings.device,
        selection=job.selects.selection(job.every) if job.selects else None,
    )


def checkpoints_folder(database: Path, branch: Branch) -> Path:
    """Return the folder of a branch's checkpoints, next to the database."""
    run = branch.run.replace("/", ".")
    return checkpoints_root(database) / run / f"b{branch.id}"
