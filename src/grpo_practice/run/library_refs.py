"""References to stored libraries, as typed by a person: `RUN[@BRANCH][:STEP]` and `L12`.

Names of runs may contain `:` and `@`, because model names do. Therefore, a text that equals a run's
name means that run; only in other texts are branch and step read from the end. `L12` always means
the library; a run named L12 can be written as `L12:last`.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.stats import Question
from grpo_practice.core.types import Library
from grpo_practice.reports.known_scores import measured
from grpo_practice.store import Store, branches, libraries, steps
from grpo_practice.store.queries import evaluations, references, runs, scores
from grpo_practice.store.records import Branch, RunRow, StepRow

StepRef = Literal["last", "best"] | int

# Limit the number of digits, because SQLite rejects integers of more than 64 bits with
# OverflowError.
_REF = re.compile(
    r"(?P<run>.+?)(?:@(?P<branch>[0-9]{1,9}))?(?::(?P<step>last|best|[0-9]{1,9}))?", re.DOTALL
)
LIBRARY_NAME = re.compile(r"L([0-9]{1,18})")
"""Name of a library: `L12`."""


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run, and optionally a branch and a step, as typed."""

    run: str
    branch: int | None = None
    """Branch number; None selects the newest branch."""
    step: StepRef | None = None
    """Step that produced the library; None if the text names no step."""


@dataclass(frozen=True, slots=True)
class LibraryRef:
    """A library and its origin."""

    library: Library
    run: str
    branch: int
    """Branch that contains the step, and records the agent that played it."""
    step: int | None
    """Closed step that produced the library; None for the library that the run started with."""


def parse_ref(text: str) -> RunRef:
    """Return the parts of `RUN[@BRANCH][:STEP]`; raise ConfigError if it names no run."""
    found = _REF.fullmatch(text)
    if found is None:
        raise ConfigError("the name of the run is empty", hint="grpo-practice runs list")
    branch, step = found["branch"], found["step"]
    return RunRef(found["run"], int(branch) if branch else None, parse_step(step) if step else None)


def parse_step(text: str) -> StepRef:
    """Return `last`, `best`, or the number of a step; raise ConfigError for anything else."""
    match text:
        case "last" | "best":
            return text
        case _ if re.fullmatch("[0-9]{1,9}", text):
            return int(text)
        case _:
            raise ConfigError(
                f"--step {text}: should be `last`, `best` or the number of a step",
                hint="steps are counted from 0",
            )


def library_of(store: Store, ref: str | None = None, step: str = "last") -> LibraryRef:
    """Return the library that `RUN[@BRANCH][:STEP]` or `L12` refers to.

    Args:
        store: The database.
        ref: Reference as typed; None selects the latest practice run.
        step: `last`, `best` or a number; must be `last` if `ref` already names a step.

    Raises:
        ConfigError: The run, branch, step or library does not exist, or the best step is unknown.
    """
    wanted = parse_step(step)
    if ref is not None and (named := LIBRARY_NAME.fullmatch(ref)):
        if wanted != "last":
            raise ConfigError(f"{ref} is one library, so it has no steps", hint="leave out --step")
        return _library(store, int(named[1]))
    parsed = _parsed(store, ref)
    if parsed.step is not None:
        if wanted not in ("last", parsed.step):
            raise ConfigError(f"{ref} and --step {step} name two steps", hint="keep one of them")
        wanted = parsed.step
    run = _practice_run(store, parsed.run)
    branch = store.read(branches.load, _branch_id(store, run, parsed.branch))
    closed = [row for row in store.read(steps.on_line, branch) if row.closed]
    if not closed:
        raise ConfigError(
            f"{run.name} has closed no step yet, so it has no library", hint=_go_on(store, run)
        )
    match wanted:
        case "best":
            return _best(store, run, closed)
        case int(number):
            return _after(store, run, _numbered(store, run, closed, number))
        case _:
            return _after(store, run, closed[-1])


def latest_or_named(store: Store, name: str | None) -> RunRow:
    """Return the practice run with this name; without a name, the latest practice run.

    Raises:
        ConfigError: The run does not exist, or the name includes a branch or a step.
    """
    ref = _parsed(store, name)
    if name is not None and name != ref.run:
        raise ConfigError(
            f"{name}: approval applies to the run as it is now, not to a branch or step",
            hint=f"leave out the branch and the step: {ref.run}",
        )
    return _practice_run(store, ref.run)


def _library(store: Store, library_id: int) -> LibraryRef:
    origin = store.read(references.origin, library_id)
    if origin is None:
        raise ConfigError(
            f"there is no library L{library_id} in {store.path}",
            hint="`grpo-practice runs list` lists the runs, and `runs show` the libraries of a run",
        )
    library = store.read(libraries.load, library_id)
    return LibraryRef(library, origin.run, origin.branch_id, origin.step)


def run_and_step(store: Store, ref: str) -> tuple[RunRow, Branch, int | None]:
    """Return the run (of any kind), branch and step of a reference `RUN[@BRANCH][:STEP]`.

    Raises:
        ConfigError: The run or branch does not exist, or the step is not a number.
    """
    parsed = _parsed(store, ref)
    run = store.read(runs.named, parsed.run)
    if isinstance(parsed.step, str):
        raise ConfigError(
            f"{ref}: rollouts need the number of a step, not `{parsed.step}`",
            hint=f"{run.name}:0 for the first step",
        )
    if run.head_branch is None:
        raise ConfigError(
            f"{run.name} was never started, so it has no rollouts",
            hint=f"grpo-practice runs show {shlex.quote(run.name)}",
        )
    return run, store.read(branches.load, _branch_id(store, run, parsed.branch)), parsed.step


def _parsed(store: Store, ref: str | None) -> RunRef:
    if ref is None:
        newest = store.read(runs.latest, ["practice"])
        if newest is None:
            raise ConfigError(
                f"there is no practice run in {store.path} yet",
                hint="`grpo-practice init my-task` writes a config to practise with",
            )
        return RunRef(newest.name)
    if store.read(runs.find, ref) or not ref:
        return RunRef(ref) if ref else parse_ref(ref)
    parsed = parse_ref(ref)
    # `model=llama3:8` begins the name of a run; it does not ask for step 8 of another.
    whole = store.read(runs.find, parsed.run) is None and store.read(runs.begins_name, ref)
    return RunRef(ref) if whole else parsed


def _practice_run(store: Store, name: str) -> RunRow:
    # Such a name reaches this point only if `_REF` did not match its end, as in `RUN:frist`.
    start = re.split("[@:]", name)[0]
    if start != name and not store.read(runs.find, name) and store.read(runs.find, start):
        raise ConfigError(
            f"{name}: cannot read what follows {start}",
            hint=f"{start}:last, {start}:best, {start}:N for step N, or {start}@BRANCH:N",
        )
    run = store.read(runs.named, name)
    if run.kind == "practice":
        return run
    played = store.read(branches.load, run.head_branch).library if run.head_branch else Library()
    if played.id:
        hint = f"the library it was played with is L{played.id}"
    else:
        hint = _library_elsewhere(store, run)
    what = "an evaluation" if run.kind == "eval" else f"a {run.kind} run"
    raise ConfigError(f"{run.name} is {what}, so it does not produce a library", hint=hint)


def _library_elsewhere(store: Store, run: RunRow) -> str:
    """Return a hint that names a run with a library, for use when a run has no library."""
    for name in (run.parent_run, run.exp_id):
        other = store.read(runs.find, name) if name else None
        if other is not None and other.kind == "practice":
            return f"name a practice run, such as {other.name}"
    if run.kind == "train":
        export = f"grpo-practice export-agent --run {shlex.quote(run.name)}"
        return f"it made weights instead: {export}"
    return "name a practice run from `grpo-practice runs list`"


def _branch_id(store: Store, run: RunRow, wanted: int | None) -> int:
    ids = store.read(references.branch_ids, run.name)
    if wanted is None:
        return run.head_branch or ids[-1]
    if wanted not in ids:
        names = ", ".join(f"{run.name}@{i}" for i in ids)
        raise ConfigError(f"{run.name} has no branch {wanted}", hint=f"its branches: {names}")
    return wanted


def _go_on(store: Store, run: RunRow) -> str:
    """Return a hint with the command that resumes a run, even if it is not the latest."""
    command = store.read(runs.last_command, run.name)
    typed = command if command.startswith("grpo-practice ") else "grpo-practice practice"
    return f"`{typed}` resumes the run; stored answers are not paid for again"


def _numbered(store: Store, run: RunRow, closed: Sequence[StepRow], number: int) -> StepRow:
    for row in closed:
        if row.plan.step == number:
            return row
    last = closed[-1].plan.step
    raise ConfigError(
        f"{run.name} has not closed step {number}; its last closed step is {last}",
        hint=f"{run.name}:{last}, or continue: {_go_on(store, run)}",
    )


def _after(store: Store, run: RunRow, row: StepRow) -> LibraryRef:
    return LibraryRef(
        store.read(libraries.load, row.library_out), run.name, row.branch_id, row.plan.step
    )


def _best(store: Store, run: RunRow, closed: Sequence[StepRow]) -> LibraryRef:
    """Return the last library, unless the library with the highest mean is better by enough.

    The highest of several means is biased upwards by chance. Only libraries evaluated on the
    selection dataset are candidates, including the library that the run started with.
    """
    made = store.read(evaluations.selections, run.name)
    if not made:
        raise ConfigError(
            f"{run.name} has no evaluations to choose its best step by",
            hint="set practice.select_dataset (never the test set) and run `grpo-practice "
            "practice` again: closed steps are kept; or use --step last or N",
        )
    dataset = made[-1].dataset  # the config may have changed since
    start = LibraryRef(
        store.read(libraries.load, closed[0].library_in), run.name, closed[0].branch_id, None
    )
    last = _after(store, run, closed[-1])
    candidates = dict[bytes, LibraryRef]()
    for found in (start, *(_after(store, run, row) for row in closed)):
        # A step that changed nothing has the same library as the one before; keep the earlier.
        candidates.setdefault(library_sha(found.library), found)
    begun = {evaluation.library_sha for evaluation in made if evaluation.dataset == dataset}
    asked, missing = dict[bytes, list[Question]](), list[str]()
    for sha, found in candidates.items():
        branch = store.read(branches.load, found.branch)
        known = measured(store, branch, found.library, dataset)
        if known is not None and known.score.questions_scored == known.score.questions:
            asked[sha] = store.read(scores.questions_of, store.read(runs.get, known.run))
        elif sha in begun or found.library in (start.library, last.library):
            missing.append(f"L{found.library.id}")
    # A choice among some of the candidates would depend on when the run was stopped.
    if missing:
        raise ConfigError(
            f"the best step of {run.name} is not known: {len(missing)} of {len(candidates)} "
            f"libraries have no complete evaluation on {dataset} ({', '.join(missing)})",
            hint=_go_on(store, run),
        )
    from grpo_practice.core.stats.paired import beats, difference

    now = asked[library_sha(last.library)]  # present, or it would be in `missing`
    gains = [(sha, difference(now, questions)) for sha, questions in asked.items()]
    sha, top = max(gains, key=lambda gain: gain[1].mean if gain[1] else 0.0)
    return candidates[sha] if top is not None and beats(top.mean, top.se) else last
