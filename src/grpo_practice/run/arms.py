"""`eval --arms`: an agent with and without its learnt experiences, played together and compared.

Each arm is stored as the same evaluation run that it would be if played alone, with the same name,
identity and branch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal, get_args

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.events import Emit, Event, Notice, silent
from grpo_practice.core.text import nearest
from grpo_practice.core.types import Library
from grpo_practice.practice.placebo_arms import FILLER_AS_LONG, filler, size
from grpo_practice.run.arm_names import with_names
from grpo_practice.run.configs import eval_config, names_dataset
from grpo_practice.run.direct_library import (
    DirectJob,
    prepare_direct,
    written_before,
    written_directly,
)
from grpo_practice.run.evaluation_run import EvalJob, eval_job, run_evals
from grpo_practice.run.library_file import holds_library, start_library
from grpo_practice.run.library_refs import LIBRARY_NAME, LibraryRef, library_of
from grpo_practice.run.own_code import python_objects
from grpo_practice.run.preflight import give_notices, place_of, session_of
from grpo_practice.run.requests.runs import ArmsRequest
from grpo_practice.run.session import Session
from grpo_practice.run.trained_arms import (
    TRAINING_ARMS,
    WEIGHTS,
    WITHOUT,
    Exported,
    check_trained_arms,
    compare_trained,
    exported_weights,
    of_weights,
)
from grpo_practice.run.waiting import run_blocking
from grpo_practice.run.weights import agent_name
from grpo_practice.store import Store, steps
from grpo_practice.store.queries import evaluations, runs
from grpo_practice.store.run_names import eval_name

if TYPE_CHECKING:
    from grpo_practice.reports.comparison import ComparisonReport

Known = Literal[
    "none",
    "full",
    "aa",
    "direct",
    "filler",
    "base",
    "practised",
    "trained",
    "trained+practised",
]
"""`none`: no library. `full`: the library. `aa`: the library with another seed, which shows the
effect of chance. `direct` and `filler`: see `practice/placebo_arms.py`. `base` and `practised`:
`none` and `full` in comparisons with trained weights; see `trained_arms.py`.
"""

KNOWN: tuple[str, ...] = get_args(Known)


@dataclass(frozen=True, slots=True)
class ArmsJob:
    """Prepared arms: everything that they name has been found and checked."""

    session: Session
    request: ArmsRequest
    evaluations: Mapping[str, EvalJob]
    """Arm → its evaluation, in the order of the command. Until the library of `direct` has been
    written, its entry uses the library of `full`.
    """
    direct: DirectJob | None = None
    """Job that writes the library of `direct`; None if none is needed or it already exists."""
    weights: Exported | None = None
    """Trained weights, if an arm uses them."""


def prepare_arms(session: Session, request: ArmsRequest) -> ArmsJob:
    """Return the job; nothing has been paid for or recorded yet.

    Raises:
        ConfigError: An arm is unknown or named twice, or an evaluation cannot be used.
        DataError: The dataset is missing, or a gold answer cannot be scored.
    """
    _check_names(request)
    once = replace(session, emit=each_once(session.emit))
    by_hand = _by_hand(once, request.arms)
    learnt = _learnt(session.store, request, by_hand)
    if request.config is None:
        base = learnt.run if learnt else _base(session.store, request)
        request = replace(request, run=base)
    weights = _weights(session.store, request, learnt)
    libraries = by_hand | dict.fromkeys(_taught(request), learnt.library if learnt else None)
    jobs = {
        name: _evaluation(once, name, request, libraries.get(name), weights)
        for name in request.arms
        if name != "filler"  # made below, to match the length of the library
    }
    _check_comparable(jobs)
    if weights is not None:
        check_trained_arms(jobs, weights)
    direct = None
    if learnt is not None and "direct" in request.arms:
        environment = request.evaluation.environment()
        direct = prepare_direct(session.store, learnt, environment)
        # This only replays stored replies, so it is fast and sends nothing.
        if (library := run_blocking(written_before(direct, session))) is not None:
            jobs["direct"], direct = _evaluation(once, "direct", request, library), None
    if "filler" in request.arms:
        like = learnt.library if learnt is not None else next(iter(by_hand.values()))
        library = filler(like)
        if (longer := size(library) / size(like) - 1) > FILLER_AS_LONG:
            session.notice(
                f"filler is {100 * longer:.0f} % longer than the library, because some experiences"
                " are shorter than any filler sentence"
            )
        jobs["filler"] = _evaluation(once, "filler", request, library)
    # Until its library is written, `direct` uses the library of `full`, and is not a duplicate.
    settled = {name: job for name, job in jobs.items() if name != "direct" or direct is None}
    _check_different(settled)
    first, *others = [job.loaded for job in jobs.values()]
    beside = [loaded.config for loaded in others]
    together = session_of(
        once,
        request.evaluation,
        first,
        *(job.spec.name for job in settled.values()),
        beside=[*beside, direct.loaded.config] if direct else beside,
    )
    for name in filter(_is_file, request.arms):
        give_notices(once, jobs[name].loaded)
    together = replace(together, emit=session.emit)  # notices of the play may repeat
    # All arms announce the same destinations of keys; announce each once.
    asked = [(job.spec.name, job.loaded.unannounced) for job in jobs.values()]
    asked += [(direct.learnt.run, direct.loaded.unannounced)] if direct else []
    for run, unannounced in asked:
        together.announcements.update(unannounced(place_of(once.store, run)))
    ordered = {name: replace(jobs[name], session=together) for name in request.arms}
    return ArmsJob(together, request, with_names(session.store, ordered), direct, weights)


def _weights(store: Store, request: ArmsRequest, learnt: LibraryRef | None) -> Exported | None:
    """Return the trained weights of the arms; None if no arm uses trained weights."""
    if not set(request.arms) & set(TRAINING_ARMS):
        return None
    asked = request.evaluation
    if learnt is not None:
        exp_id = store.read(runs.get, learnt.run).exp_id
    elif asked.config is not None or asked.run is None:
        exp_id = eval_config(store, asked, python_objects(None, asked.verify))[0].config.exp_id
    else:
        exp_id = store.read(runs.named, asked.run).exp_id
    return exported_weights(store, exp_id)


def each_once(emit: Emit) -> Emit:
    """Return a sink that passes on each distinct notice once, because all arms emit the same."""
    known = set[str]()

    def passed(event: Event) -> None:
        if isinstance(event, Notice):
            if event.text in known:
                return
            known.add(event.text)
        emit(event)

    return passed


def _check_different(jobs: Mapping[str, EvalJob]) -> None:
    """Raise ConfigError if two arms are the same evaluation."""
    names = dict[str, str]()
    for arm, job in jobs.items():
        if (other := names.setdefault(job.spec.name, arm)) != arm:
            raise ConfigError(
                f"{other} and {arm} are the same evaluation, {job.spec.name}",
                hint="leave one of them out",
            )


def _check_comparable(jobs: Mapping[str, EvalJob]) -> None:
    """Raise ConfigError before paying for arms that `compare_evaluations` would reject."""
    specs = [(job.spec, job.config.judge.model_provider.model) for job in jobs.values()]
    (first, judge), *others = specs
    for spec, other in others:
        if spec.simulated != first.simulated:
            one, two = sorted((first, spec), key=lambda of: not of.simulated)
            raise ConfigError(
                f"{one.name} is simulated, and {two.name} is not, so they cannot be compared",
                hint="--model NAME uses the same model in all arms",
            )
        if spec.verifier.sha != first.verifier.sha:
            by = f"{judge} and {other}" if judge != other else f"{judge} with different settings"
            raise ConfigError(
                f"{first.name} and {spec.name} would be judged by {by}",
                hint="set judge_model, so that the same model judges all arms",
            )


def _check_names(request: ArmsRequest) -> None:
    names, asked = request.arms, request.evaluation
    if isinstance(asked.agent, Path) or asked.rejudge or asked.library is not None:
        raise ConfigError(
            "--arms already names the agents: leave out --agent, --library and --rejudge",
            hint="an agent or library file can be an arm: --arms none,full,agent.yaml",
        )
    for name in names:
        if name not in KNOWN and not LIBRARY_NAME.fullmatch(name) and not _is_file(name):
            near, known = nearest(name, KNOWN, most=1), ", ".join(KNOWN)
            if Path(name).suffix.lower() in (".txt", ".md"):
                near = f"make it an agent file: agent: {{name: {Path(name).stem}, instructions: …}}"
            raise ConfigError(
                f"--arms {name}: there is no such arm",
                hint=near or f"arms are {known}, L12 for a library, and library or agent files",
            )
    if len(names) < 2:
        raise ConfigError("a comparison needs two arms or more", hint="--arms none,full")
    parts = [agent_name(Path(name)) if _is_file(name) else name for name in names]
    for part in parts:
        if parts.count(part) > 1:
            others = [n for n, p in zip(names, parts, strict=True) if p == part]
            raise ConfigError(
                f"--arms {','.join(others)}: two arms have the name {part}",
                hint="name each once, or rename one of the files",
            )


def _is_file(name: str) -> bool:
    return Path(name).suffix in (".yaml", ".yml", ".json") or "/" in name


def _taught(request: ArmsRequest) -> list[str]:
    """Return the arms that need the practised library."""
    return [n for n in request.arms if n in KNOWN and n not in ("none", *WITHOUT)]


def _by_hand(session: Session, names: Sequence[str]) -> dict[str, Library]:
    """Return arm → library for each arm that is a library file.

    Raises:
        ConfigError: A file cannot be read, or contains an unusable experience.
    """
    paths = {name: Path(name) for name in names if _is_file(name) and holds_library(Path(name))}
    found = {name: start_library(session, path) for name, path in paths.items()}
    return {name: library for name, library in found.items() if library is not None}


def _learnt(
    store: Store, request: ArmsRequest, by_hand: Mapping[str, Library]
) -> LibraryRef | None:
    """Return the practised library that the arms compare; None if no arm needs it.

    If only `filler` needs a library, it takes its length from a library file instead.

    Raises:
        ConfigError: The library does not exist or is empty, or `filler` is named with several
            files.
    """
    needed = _taught(request)
    if not needed or (needed == ["filler"] and len(by_hand) == 1):
        return None
    if needed == ["filler"] and by_hand:
        raise ConfigError(
            f"filler matches the length of one library, but the arms name {' and '.join(by_hand)}",
            hint="name one file with filler, and compare the others in a separate command",
        )
    named = request.evaluation.run
    if request.evaluation.config is not None:
        objects = python_objects(None, request.evaluation.verify)
        named = eval_config(store, request.evaluation, objects)[0].config.exp_id
    learnt = library_of(store, named, request.step)
    if not learnt.library:
        raise ConfigError(
            f"the library of {learnt.run} has no experiences, so there is no {needed[0]}",
            hint=f"grpo-practice runs diagnose {quote(learnt.run)}",
        )
    return learnt


def _base(store: Store, request: ArmsRequest) -> str | None:
    """Return the run whose configuration the arms use if no config is given.

    A single evaluation would use the latest run, but here the latest run may itself be an arm.
    """
    asked = request.evaluation
    if asked.run is not None or names_dataset(asked.changes):
        return asked.run
    if libraries := [name for name in request.arms if LIBRARY_NAME.fullmatch(name)]:
        return library_of(store, libraries[0]).run
    if (practised := store.read(runs.latest, ["practice"], to_play=True)) is not None:
        return practised.name
    latest = store.read(runs.latest, ["eval"], to_play=True)
    if latest is None:
        return None
    if own := store.read(runs.find, eval_name(latest.exp_id)):
        return own.name
    return store.read(evaluations.first_without_library, latest.exp_id) or latest.name


def _evaluation(
    session: Session,
    name: str,
    request: ArmsRequest,
    library: Library | None,
    weights: Exported | None = None,
) -> EvalJob:
    """Return the evaluation for an arm, with at least as many attempts as it already has."""
    store, asked = session.store, request.evaluation
    if LIBRARY_NAME.fullmatch(name):
        asked = replace(asked, library=name)
    elif library is not None:
        asked = replace(asked, library=library)
    elif name not in KNOWN:
        asked = replace(asked, agent=Path(name))
    if weights is not None and name in WEIGHTS:
        asked = replace(asked, agent=weights.agent)
    objects = python_objects(asked.agent, asked.verify)
    loaded, target = eval_config(store, asked, objects)
    wanted = asked
    if name == "aa":
        # Always the same other seed, so that a repeated command finds its answers in the ledger.
        seed = loaded.config.seed + 1
        target = replace(target, name=f"{target.name}/seed={seed}")
        wanted = replace(wanted, overrides={**wanted.overrides, "seed": seed})
    # The attempts of a plan can only grow, so asking for fewer would be refused.
    if (most := planned_attempts(store, target.name)) > loaded.config.pass_k:
        wanted = replace(wanted, pass_k=most)
    # Neither a seed nor a number of rollouts is part of the names that `eval_config` makes.
    if wanted != asked:
        loaded, _ = eval_config(store, wanted, objects)
    job = eval_job(session, loaded, target, objects, limit=asked.limit)
    return of_weights(job, weights) if weights is not None and name in WEIGHTS else job


def planned_attempts(store: Store, name: str) -> int:
    """Return the maximum number of rollouts that a run plans per question; 0 for a new run."""
    branch = store.read(runs.newest_branch, name)
    rows = store.read(steps.on_line, branch) if branch else []
    return max((k for row in rows for _, k in row.plan.slots), default=0)


async def run_arms(job: ArmsJob) -> "ComparisonReport":
    """Complete the evaluations together and return their comparison.

    Raises: The errors of `run_evals` and `written_directly`.
    """
    job = await with_direct(job)
    await run_evals(list(job.evaluations.values()))
    return compared(job)


async def with_direct(job: ArmsJob) -> ArmsJob:
    """Return the job with the library of `direct`, requested from the teacher if it is missing."""
    if job.direct is None:
        return job
    library = await written_directly(job.direct, job.session)
    # `prepare_arms` has already given the notices about this evaluation.
    evaluation = _evaluation(replace(job.session, emit=silent), "direct", job.request, library)
    evaluations = {**job.evaluations, "direct": replace(evaluation, session=job.session)}
    evaluations = with_names(job.session.store, evaluations)
    _check_different(evaluations)
    return replace(job, evaluations=evaluations, direct=None)


def compared(job: ArmsJob) -> "ComparisonReport":
    """Return the comparison of the arms: each with each if they are only libraries and agents.

    A known word, such as `none`, asks what one arm owes to another. The main arm is then compared
    with each other arm: `full`; without it, the last arm other than `none` and `filler`; without
    such an arm, the last arm.
    """
    named = {name: evaluation.spec.name for name, evaluation in job.evaluations.items()}
    if job.weights is not None:
        files = {name for name in named if _is_file(name)}
        return compare_trained(job.session.store, named, job.weights.run, files)
    # Imported here, because every forecast imports this module, and none compares.
    from grpo_practice.reports.compared import compare_evaluations

    names = job.request.arms
    if not set(KNOWN).intersection(names):
        return compare_evaluations(job.session.store, named, contrasts="each")
    last = next((n for n in reversed(names) if n not in ("none", "filler")), names[-1])
    against = "full" if "full" in named else last
    contrasts = [(other, against) for other in named if other != against]
    return compare_evaluations(job.session.store, named, contrasts=contrasts)
