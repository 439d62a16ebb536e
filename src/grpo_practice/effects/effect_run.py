"""`experiences effect`: measure the effect of each experience on held-out questions.

The run is an evaluation in which each attempt is shown half of the library. Evaluations with the
whole library and with no library are played at the same time; each is stored as the same run that
it would be if played alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from shlex import quote

from grpo_practice.config import PracticeConfig, load_practice
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.stats.effects import FEWEST, MOST
from grpo_practice.core.text import count, folded
from grpo_practice.core.types import Library
from grpo_practice.effects.request import EffectRequest
from grpo_practice.reports.effects import EffectsReport, effects_report
from grpo_practice.run.arms import each_once, planned_attempts
from grpo_practice.run.configs import stored_text
from grpo_practice.run.evaluation_run import EvalJob, eval_job, run_evals, wanted_rollouts
from grpo_practice.run.forecast.estimate import Forecast
from grpo_practice.run.forecast.power import planned_effect
from grpo_practice.run.forecast.remaining_calls import forecast
from grpo_practice.run.library_refs import LibraryRef, library_of
from grpo_practice.run.own_code import python_objects
from grpo_practice.run.pilot import together
from grpo_practice.run.preflight import session_of
from grpo_practice.run.session import Session
from grpo_practice.run.specs import EvalTarget
from grpo_practice.store import Store, branches, datasets
from grpo_practice.store.queries import arms, runs
from grpo_practice.store.records import EFFECT, DatasetRow
from grpo_practice.store.run_names import effect_name, eval_name, library_variant, select_variant

ATTEMPTS = 8
"""Default number of rollouts per question, each with half of the library."""
WHOLE = 8
"""Number of half-library rollouts for each rollout with the whole library and each without it."""

ANOTHER = "name a dataset not used for practice or evaluation: --dataset NAME"
"""Hint for a dataset that cannot be used."""


@dataclass(frozen=True, slots=True)
class EffectJob:
    """A prepared measurement: everything that it names has been found and checked."""

    session: Session
    evaluations: Mapping[str, EvalJob]
    """`effect`, `full` and `none`, each with its run."""


def prepare_effect(session: Session, request: EffectRequest) -> EffectJob:
    """Return the job; nothing has been paid for or recorded yet.

    Raises:
        ConfigError: The library, the number of rollouts or the configuration cannot be used.
        DataError: The dataset is missing, is used for evaluation, or contains only questions that
            were practised.
    """
    store = session.store
    found = library_of(store, request.library, request.step)
    _check_size(found, request.k)
    objects = python_objects(request.agent, request.verify)
    stored = stored_text(store, found.run)
    if stored is None or store.read(runs.get, found.run).kind != "practice":
        raise ConfigError(
            f"L{found.library.id} belongs to {found.run}, which is not a practice run, so it has"
            " no settings to evaluate with",
            hint="grpo-practice runs list",
        )
    overrides = [*request.changes, *objects.overrides]
    loaded = load_practice(stored, overrides, request.environment())
    config = loaded.config
    name = _dataset_name(config, request.dataset)
    variant, library = select_variant(name), found.library
    exp_id = config.exp_id
    targets = {
        EFFECT: EvalTarget(effect_name(exp_id, library), library, EFFECT),
        "full": EvalTarget(eval_name(exp_id, library_variant(library), variant), library, "select"),
        "none": EvalTarget(
            eval_name(exp_id, library_variant(Library()), variant), Library(), "select"
        ),
    }
    k = request.k or max(ATTEMPTS, planned_attempts(store, targets[EFFECT].name))
    within = session_of(session, request, loaded, *(target.name for target in targets.values()))
    # The three evaluations emit the same notices about the dataset.
    once, evaluations = replace(within, emit=each_once(within.emit)), dict[str, EvalJob]()
    for part, target in targets.items():
        least = k if part == EFFECT else max(k // WHOLE, 1, planned_attempts(store, target.name))
        data = config.evaluation.data.model_copy(update={"dataset": name})
        changed = {"exp_id": exp_id, "data": data, "pass_k": least}
        evaluation = loaded.as_evaluation(config.evaluation.model_copy(update=changed))
        job = eval_job(once, evaluation, target, objects, limits=config.practice)
        evaluations[part] = replace(job, session=within)
    measured = evaluations[EFFECT]
    _check_unused(store, config, measured.dataset)
    left_out = measured.unscorable | _practised(store, found.branch, measured.dataset)
    if len(left_out) >= measured.dataset.n:
        raise DataError(
            f"{found.run} has practised on all questions of {measured.dataset.name}, so they"
            " cannot measure its experiences",
            hint=ANOTHER,
        )
    # Selection also uses the evaluations `full` and `none`, so these keep all questions.
    evaluations[EFFECT] = replace(measured, unscorable=left_out)
    return EffectJob(within, evaluations)


def _check_size(found: LibraryRef, k: int | None) -> None:
    size = len(found.library)
    if k is not None and (k < 2 or k % 2):
        raise ConfigError(
            f"-k {k} is not a positive even number, but rollouts come in pairs, one with each"
            " half of the library",
            hint=f"use an even number, such as {ATTEMPTS}",
        )
    if not FEWEST <= size <= MOST:
        raise ConfigError(
            f"L{found.library.id} of {found.run} has {count(size, 'experience')}, but effects"
            f" can be measured only for {FEWEST} to {MOST}",
            hint=f"grpo-practice experiences list --run {quote(found.run)}",
        )


def _dataset_name(config: PracticeConfig, named: str | None) -> str:
    """Return the dataset to use: the given name, or else the dataset that selects libraries."""
    name = named or config.practice.select_dataset
    if name is None:
        raise ConfigError(
            f"{config.exp_id} has no practice.select_dataset, and no other dataset is named",
            hint=ANOTHER,
        )
    if name == config.evaluation.data.dataset:
        raise _evaluated_on(name, config.exp_id)
    return name


def _evaluated_on(dataset: str, exp_id: str) -> ConfigError:
    return ConfigError(
        f"{exp_id} is evaluated on {dataset}, so a library pruned with these questions would"
        " look better on them than it is",
        hint=ANOTHER,
    )


def _check_unused(store: Store, config: PracticeConfig, dataset: DatasetRow) -> None:
    """Raise ConfigError if evaluations of the experiment used any of these questions."""
    named = config.evaluation.data.dataset
    tested = store.read(datasets.find, named) if named else None
    used = [tested] if tested else []
    for run in store.read(runs.all_runs):
        if run.exp_id == config.exp_id and run.purpose == "test" and run.head_branch is not None:
            branch = store.read(branches.load, run.head_branch)
            used.append(store.read(datasets.by_id, branch.dataset_id))
    # Compare texts, because the same questions may have been uploaded under another name.
    mine = _questions(store, dataset)
    tests = [_questions(store, row) for row in {row.id: row for row in used}.values()]
    if n := len(mine.intersection(set[str]().union(*tests))):
        some = f"{n} of the {count(len(mine), 'question')} of "
        raise _evaluated_on(f"{some if n < len(mine) else ''}{dataset.name}", config.exp_id)


def _questions(store: Store, dataset: DatasetRow) -> set[str]:
    asked = store.read(arms.question_texts, store.read(datasets.sample_ids, dataset.id))
    return {folded(text) for text in asked.values()}


def _practised(store: Store, branch_id: int, dataset: DatasetRow) -> frozenset[int]:
    """Return samples whose question was practised on the branch or one of its ancestors."""
    branch = store.read(branches.load, branch_id)
    planned = store.read(arms.planned_samples, {segment.branch_id for segment in branch.line})
    texts = {folded(text) for text in store.read(arms.question_texts, planned).values()}
    asked = store.read(arms.question_texts, store.read(datasets.sample_ids, dataset.id))
    return frozenset(sample for sample, text in asked.items() if folded(text) in texts)


async def run_effect(job: EffectJob) -> EffectsReport:
    """Complete the measurement, as far as the endpoint allows, and return the effects.

    Raises: The errors of `run_evals`.
    """
    session, evaluations = job.session, job.evaluations
    await run_evals(list(evaluations.values()))
    names = {part: e.spec.name for part, e in evaluations.items()}
    return effects_report(session.store, names[EFFECT], whole=names["full"], none=names["none"])


def forecast_effect(job: EffectJob) -> Forecast:
    """Return the remaining work of a measurement, and its expected standard error."""
    measured = job.evaluations[EFFECT]
    k = measured.config.pass_k
    planned = planned_effect(
        job.session.store,
        measured.config.exp_id,
        measured.spec.library,
        wanted_rollouts(measured) // k,
        k,
    )
    parts = {part: forecast(evaluation) for part, evaluation in job.evaluations.items()}
    lines = [replace(line, part=part) for part, of in parts.items() for line in of.stages]
    return replace(together(parts, lines), power=None, effect=planned)
