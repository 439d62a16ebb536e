"""Reports on the runs of a database: the list, and runs that were deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from shlex import quote
from typing import ClassVar, Literal, TypedDict, Unpack, get_args

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import count
from grpo_practice.reports.base import Report, number
from grpo_practice.store import Store, branches
from grpo_practice.store.batch_log import Awaited as Awaited
from grpo_practice.store.batch_log import awaited
from grpo_practice.store.queries import runs, scores
from grpo_practice.store.queries.runs import Asked
from grpo_practice.store.records import RunRow, ShownKind

RunOrder = Literal["begun", "score"]
"""Order of a list of runs: newest first, or highest score first."""
KINDS: tuple[ShownKind, ...] = get_args(ShownKind)
SORTS: tuple[RunOrder, ...] = get_args(RunOrder)
NOTHING = Asked(None, None, None)


class RunOptions(TypedDict, total=False):
    """Keywords that select and order runs; a run must match all keywords that are set."""

    kind: ShownKind | None
    """Kind of run."""
    grep: str | None
    """Text in the name, arm, dataset, model, tags or note of a run, in any case."""
    dataset: str | None
    model: str | None
    tags: Sequence[str]
    """Tags that a run must have."""
    last: int | None
    """Maximum number of runs; the newest are kept."""
    sort: RunOrder
    """Order: `begun`, newest first (the default), or `score`, highest first."""


@dataclass(frozen=True, slots=True, repr=False)
class DeletedRuns(Report):
    """Deleted runs: the named runs and the evaluations that they started."""

    schema: ClassVar = "grpo-practice.deleted-runs/1"

    runs: Sequence[str]

    @property
    @override
    def next_command(self) -> str:
        """Command that lists the remaining runs."""
        return "grpo-practice runs list"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each run."""
        return [(f"deleted {count(len(self.runs), 'run')}",), *((name,) for name in self.runs)]


@dataclass(frozen=True, slots=True, repr=False)
class LabelledRun(Report):
    """The labels of a run: its tags and its note."""

    schema: ClassVar = "grpo-practice.labelled-run/1"
    in_document: ClassVar = ("run.name", "run.tags", "run.note")

    run: RunRow

    @property
    @override
    def next_command(self) -> str:
        """Command that lists the runs with these tags."""
        tags = "".join(f" --tag {quote(tag)}" for tag in self.run.tags)
        return f"grpo-practice runs list{tags}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for the tags and for the note."""
        run = self.run
        return [(run.name,), ("tags", " ".join(run.tags) or "none"), ("note", run.note or "none")]


@dataclass(frozen=True, slots=True)
class ListedRun(RunRow):
    """A run with its dataset, model and score."""

    dataset: str | None
    agent: str | None
    """Name of the agent in its configuration; None for a recorded run."""
    model: str | None
    """Model that answers; None if the agent's configuration does not name a model."""
    score: float | None
    """Mean score of a complete evaluation; None for other runs."""
    awaits: Awaited | None
    """Requests that an endpoint is answering in batches; None without any."""


@dataclass(frozen=True, slots=True, repr=False)
class RunsReport(Report):
    """Runs of a database, newest first or in order of their scores."""

    schema: ClassVar = "grpo-practice.runs/1"
    in_document: ClassVar = ("runs",)

    runs: Sequence[ListedRun]
    stored: int
    """Number of all runs in the database."""

    @property
    def scores(self) -> Mapping[str, float]:
        """Name of each complete evaluation → its mean score."""
        return {run.name: run.score for run in self.runs if run.score is not None}

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each run."""
        return [
            (f"{len(self.runs)} runs",),
            *(
                (
                    r.name,
                    r.kind,
                    r.status,
                    f"{r.steps_closed} of {r.steps} steps",
                    number(r.score),
                )
                for r in self.runs
            ),
        ]


def as_it_stands(store: Store, run: RunRow) -> RunRow:
    """Return the run with its true status: `interrupted` if its process was killed."""
    # A killed process leaves the status `running` behind, but it no longer holds the run's lock.
    if run.status != "running" or store.is_worked_on(run.name):
        return run
    return replace(run, status="interrupted")


def runs_report(store: Store, **choice: Unpack[RunOptions]) -> RunsReport:
    """Return the runs that match all options, with the means of complete evaluations.

    Raises:
        ConfigError: The kind or the order is unknown, or `last` is not positive.
    """
    kind, last, sort = choice.get("kind"), choice.get("last"), choice.get("sort")
    for given, known in ((kind, KINDS), (sort, SORTS)):
        if given not in (None, *known):
            what = "kind of run" if known is KINDS else "order"
            raise ConfigError(f"there is no {what} {given!r}", hint=f"choose {', '.join(known)}")
    if last is not None and last < 1:
        raise ConfigError(f"last={last}: should be 1 or more")
    asked, rows = store.read(runs.asked), store.read(runs.all_runs)
    # Runs of one time keep the order in which they were stored, newest first.
    newest = sorted(rows, key=lambda run: run.created_at)[::-1]
    awaits = store.read(awaited)
    found = [run for run in newest if _matches(run, asked.get(run.name, NOTHING), choice)]
    listed = [
        _listed(store, as_it_stands(store, run), asked, awaits.get(run.name))
        for run in found[:last]
    ]
    if sort == "score":  # runs without a score come last, newest first
        listed.sort(key=lambda run: -1.0 if run.score is None else run.score, reverse=True)
    return RunsReport(listed, len(rows))


def _matches(run: RunRow, of: Asked, choice: RunOptions) -> bool:
    wanted = (choice.get("kind"), choice.get("dataset"), choice.get("model"))
    facts = (run.shown_kind, of.dataset, of.model)
    if any(one not in (None, fact) for one, fact in zip(wanted, facts, strict=True)):
        return False
    if not {*choice.get("tags", ())} <= {*run.tags}:
        return False
    texts = (run.name, run.arm or "", of.dataset or "", of.model or "", *run.tags, run.note)
    sought = (choice.get("grep") or "").casefold()
    return any(sought in text.casefold() for text in texts)


def _listed(
    store: Store, run: RunRow, asked: Mapping[str, Asked], awaits: Awaited | None
) -> ListedRun:
    score, of = None, asked.get(run.name, NOTHING)
    if run.has_score and run.head_branch and run.steps_closed >= run.steps:
        score = store.read(scores.mean_score, store.read(branches.load, run.head_branch))
    facts = {field.name: getattr(run, field.name) for field in fields(RunRow)}
    facts |= {"dataset": of.dataset, "agent": of.agent, "model": of.model}
    return ListedRun(**facts, score=score, awaits=awaits)
