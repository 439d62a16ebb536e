"""`eval --arms base,practised,trained,trained+practised`: the effects of practice and training.

All four arms are evaluated at an endpoint, on the same questions and with the same settings. The
trained arms use the folder written by `export-agent --run EXP/train`.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.text import nearest
from grpo_practice.core.types import Library
from grpo_practice.reports.known_scores import evaluations_of, is_dataset
from grpo_practice.reports.learning_cost import LearningCost, cost_of_practice, cost_of_training
from grpo_practice.run.evaluation_run import EvalJob
from grpo_practice.run.library_refs import library_of
from grpo_practice.run.weights import ABOUT, AGENT, SCHEMA, weights_sha
from grpo_practice.store import Store, branches, datasets, trained_steps
from grpo_practice.store.identity import LIBRARY_SHA, MODEL, WEIGHTS_SHA, diff
from grpo_practice.store.queries import evaluations, runs
from grpo_practice.store.run_names import eval_name, library_variant, train_name

if TYPE_CHECKING:
    from grpo_practice.reports.comparison import ComparisonReport

WITHOUT = ("base", "trained")
"""Arms without a library."""
WEIGHTS = ("trained", "trained+practised")
"""Arms that use the trained weights."""
TRAINING_ARMS = ("base", "practised", "trained", "trained+practised")
_MAY_DIFFER = frozenset({MODEL, LIBRARY_SHA, WEIGHTS_SHA, "agent.sha256"})
"""Identity keys in which these arms may differ; all other keys must be equal."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A folder of trained weights, written by `export-agent`."""

    agent: Path
    """Agent file that uses the weights."""
    run: str
    sha: bytes
    base: str
    """Name of the base model, as configured."""
    base_sha: str
    """Hash of the base model's weights, in hex."""


def exported_weights(store: Store, exp_id: str) -> Exported:
    """Return the trained weights of an experiment, from the folder `EXP-trained`.

    Raises:
        ConfigError: There are no weights, or they match no checkpoint of the training run.
    """
    name, folder = train_name(exp_id), Path(f"{exp_id}-trained")
    again = f"grpo-practice export-agent --run {quote(name)} --merge -o {quote(str(folder))}"
    branch = store.read(runs.newest_branch, name)
    if branch is None:
        raise ConfigError(
            f"there is no training run {name}, so there are no trained weights",
            hint="grpo-practice train --config FILE",
        )
    about = _about(folder)
    if not about:
        raise ConfigError(
            f"the weights of {name} are not exported to {folder}",
            hint=f"{again}, then serve them",
        )
    sha = about.get("sha256")
    known = {row.sha256.hex() for row in store.read(trained_steps.checkpoints, branch)}
    # Other weights would be compared under the name of this run, such as weights from before a
    # restart, or of an experiment of the same name in another database.
    if about.get("run") != name or sha not in known:
        raise ConfigError(
            f"{folder} contains weights that {name} did not save",
            hint=f"{again} --force",
        )
    base = about.get("base", {})
    return Exported(folder / AGENT, name, bytes.fromhex(sha), base["model"], base["sha256"])


def _about(folder: Path) -> dict[str, Any]:
    """Return the record about weights that `export-agent` wrote to a folder; {} if it is absent."""
    try:
        about: Any = json.loads((folder / ABOUT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) and about.get("schema") == SCHEMA else {}


def weights_beside(store: Store, agent: Path) -> tuple[str, bytes] | None:
    """Return the training run and hash of the weights that were exported with an agent file.

    Returns None for any other file, and for weights that no training run of this database has
    saved.
    """
    about = _about(agent.parent)
    branch = store.read(runs.newest_branch, str(about.get("run")))
    if branch is None or agent.name != AGENT:
        return None
    saved = store.read(trained_steps.checkpoints, branch)
    shas = (row.sha256 for row in saved if row.sha256.hex() == about.get("sha256"))
    return next(((branch.run, sha) for sha in shas), None)


def of_weights(job: EvalJob, weights: Exported) -> EvalJob:
    """Return an arm's evaluation with the hash of the trained weights in its name and identity."""
    parts = [f"trained-{weights.sha.hex()[:8]}"]
    if job.spec.library:
        parts.append(library_variant(job.spec.library))
    name = eval_name(job.config.exp_id, *parts)
    identity = {**job.spec.identity, WEIGHTS_SHA: weights.sha.hex()}
    return replace(job, spec=replace(job.spec, name=name, identity=identity))


def check_trained_arms(jobs: Mapping[str, EvalJob], weights: Exported) -> None:
    """Raise an error unless the arms differ only in their weights and their library.

    Raises:
        FingerprintError: Prompt, dataset, scoring or sampling of two arms differ.
        ConfigError: The base arm's model is not the base model of the trained weights.
    """
    named = {name: job for name, job in jobs.items() if name in TRAINING_ARMS}
    (first, one), *others = named.items()
    spec = one.spec
    for name, job in others:
        other = job.spec
        same_verifier = spec.verifier.sha == other.verifier.sha
        changes = _changes(spec.identity, other.identity, same_verifier=same_verifier)
        if changes:
            raise FingerprintError(
                f"the arms {first} and {name} have different settings, so their difference would"
                " not be due to practice or training alone",
                changes,
                hint="give both the same settings: in the config, or in"
                f" {quote(str(weights.agent))}",
            )
    for name, job in named.items():
        if name not in WEIGHTS:
            _check_base(name, job, weights)


def _changes(
    one: Mapping[str, Any], other: Mapping[str, Any], *, same_verifier: bool
) -> list[ChangedKey]:
    """Return the differences between two arms that are not allowed.

    Without a judge, the judge model defaults to the arm's own model, so this difference is ignored.
    """
    return [
        change
        for change in diff(one, other)
        if change.key not in _MAY_DIFFER
        and not (same_verifier and change.key.startswith("judge_model."))
    ]


def _check_base(name: str, job: EvalJob, weights: Exported) -> None:
    asked = job.config.student.model_provider.model
    folder = job.loaded.base_dir / Path(asked).expanduser()
    # A local folder is compared by its weights, and a model on the hub by its name.
    if (folder / "config.json").is_file():
        same = weights_sha(folder).hex() == weights.base_sha
    else:
        same = asked == weights.base
    if not same:
        raise ConfigError(
            f"the arm {name} uses the model {asked}, but {weights.run} was trained from"
            f" {weights.base}",
            hint=f"--set agent.model.model_provider.model={quote(weights.base)} in all arms, or"
            " serve the base model under that name",
        )


def arm_runs(store: Store, exp_id: str, library: Library | None) -> dict[str, str]:
    """Return training arm → its stored evaluation, for evaluated arms only.

    All arms use the same questions and scoring as the experiment's own evaluation.
    """
    base, practice = (store.read(runs.newest_branch, name) for name in (eval_name(exp_id), exp_id))
    branch, found = base or practice, dict[str, str]()
    if branch is None:
        return {}
    dataset = branch.tests.dataset
    if base is not None:
        found["base"] = base.run
        dataset = store.read(datasets.by_id, branch.dataset_id).name
    if library is not None:
        for one in evaluations_of(store, branch, library):
            if is_dataset(one, dataset):
                found.setdefault("practised", one.run)
    training = store.read(runs.newest_branch, train_name(exp_id))
    shown = {"trained": None, **({"trained+practised": library_sha(library)} if library else {})}
    for row in store.read(trained_steps.checkpoints, training) if training else ():
        for arm, sha in shown.items():
            asked = store.read(evaluations.of_weights, exp_id, row.sha256, sha)
            alike = [one.run for one in asked if is_dataset(one, dataset)]
            found |= {arm: alike[0]} if alike else {}  # the latest weights take precedence
    return found


def compare_trained(
    store: Store, named: Mapping[str, str], training: str, files: Collection[str] = ()
) -> "ComparisonReport":
    """Return the comparison of the arms with the first arm, and the cost of their learning.

    Args:
        store: The database.
        named: Arm → its evaluation; `base` is the baseline if it is included.
        training: Training run that produced the weights.
        files: Arms that are files; their cost is unknown unless weights were exported with them.
    """
    from grpo_practice.reports.compared import compare_evaluations

    baseline = "base" if "base" in named else next(iter(named))
    contrasts = [(baseline, other) for other in named if other != baseline]
    report = compare_evaluations(store, named, contrasts=contrasts)
    costs = dict[str, LearningCost]()
    for arm, run in named.items():
        beside = weights_beside(store, Path(arm)) if arm in files else None
        if arm not in files or beside is not None:
            costs[arm] = _learning_cost(store, run, training, beside)
    return replace(report, learning=costs)


def _learning_cost(
    store: Store, evaluation: str, training: str, beside: tuple[str, bytes] | None
) -> LearningCost:
    """Return the learning cost before an arm could be evaluated; see `weights_beside`."""
    run = store.read(runs.get, evaluation)
    branch = store.read(branches.load, run.head_branch or 0)
    cost = LearningCost()
    sha = branch.agent.weights_sha
    weights = (training, sha) if sha is not None else beside
    if weights is not None and (found := store.read(runs.newest_branch, weights[0])) is not None:
        cost = cost.plus(cost_of_training(store, found, weights[1]))
    practised = store.read(runs.find, run.exp_id)
    if branch.library and practised is not None and practised.kind == "practice":
        cost = cost.plus(cost_of_practice(store, practised, branch.library.id))
    return cost


def compare_stored(store: Store, exp_id: str, names: Sequence[str]) -> "ComparisonReport":
    """Return the comparison of an experiment's stored arms; nothing is played.

    Raises:
        ConfigError: An arm is unknown or was not evaluated, or its questions or settings differ
            from the others'.
    """
    for name in names:
        if name not in TRAINING_ARMS:
            raise ConfigError(
                f"--arms {name}: there is no such arm",
                hint=nearest(name, TRAINING_ARMS, most=1) or f"arms: {', '.join(TRAINING_ARMS)}",
            )
    needs = set(names) - set(WITHOUT)
    library = library_of(store, exp_id).library if needs else None
    found = arm_runs(store, exp_id, library)
    missing = [name for name in names if name not in found]
    if missing or len(names) < 2:
        raise ConfigError(
            f"{exp_id} has no evaluation of {', '.join(missing)}"
            if missing
            else "a comparison needs two arms or more",
            hint=f"grpo-practice eval --arms {','.join(TRAINING_ARMS)} --run {quote(exp_id)}",
        )
    chosen = {name: found[name] for name in names}
    _check_stored(store, chosen)
    return compare_trained(store, chosen, train_name(exp_id))


def _check_stored(store: Store, chosen: Mapping[str, str]) -> None:
    """Raise FingerprintError if two arms differ in anything other than weights and library."""
    sides = {}
    for name, run in chosen.items():
        row = store.read(runs.get, run)
        sides[name] = store.read(branches.load, row.head_branch or 0)
    (first, one), *others = sides.items()
    for name, branch in others:
        same_verifier = one.verifier_id == branch.verifier_id
        changes = _changes(one.identity, branch.identity, same_verifier=same_verifier)
        if one.dataset_id != branch.dataset_id:
            changes.append(ChangedKey("dataset revision", one.dataset_id, branch.dataset_id))
        if changes:
            raise FingerprintError(
                f"the arms {first} and {name} were evaluated with different settings",
                changes,
                hint=f"play them together: grpo-practice eval --again --arms {','.join(chosen)}",
            )
