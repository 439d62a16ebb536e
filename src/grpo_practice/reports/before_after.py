"""Scores of a practice run's agent without and with its library, where they can be compared."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from grpo_practice.canonical import text_sha
from grpo_practice.config.reading.yaml_reader import parse_yaml
from grpo_practice.config.schema.runs import is_data_file
from grpo_practice.prompts.system import system_prompt
from grpo_practice.reports.compared import sentence_of
from grpo_practice.reports.known_scores import KnownScore, known_score, measured, scored_as
from grpo_practice.store import Store, branches, datasets, steps
from grpo_practice.store.bound_keys import INSTRUCTIONS
from grpo_practice.store.queries import references, runs, scores
from grpo_practice.store.records import Branch, DatasetRow, RunRow
from grpo_practice.store.run_names import eval_name, library_variant, selects
from grpo_practice.types import Library

Attempts = frozenset[tuple[int, int]]
"""Samples that an evaluation asks, each with its number of rollouts."""
When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Scores over the same questions, with the same verify function and number of attempts."""

    run: str
    before: KnownScore | None
    """Score without the library; None where it was not measured, or on something else."""
    after: KnownScore | None
    """Score with the library."""
    tested: bool
    """Whether it is known which questions to ask."""
    restart: str = ""
    """Option without which the evaluation before goes on as it was begun, on something else."""
    difference: str | None = None
    """Sentence on the difference of the two; None where one is missing."""
    learnt: bool = True
    """Whether there is an experience in the library."""
    options: str = ""
    """Options of an evaluation that asks as the known score's did, where the run's config would ask
    otherwise."""

    def measure(self, agent: str | None = None) -> str | None:
        """Return the command that measures what is missing; `agent` is its exported file.

        None where nothing is missing, or nobody knows which questions to ask.
        """
        if not self.tested or (self.before and self.after):
            return None
        if not self.learnt or (self.restart and self.before is None and self.after):
            return f"grpo-practice eval --run {shlex.quote(self.run)}{self.options}{self.restart}"
        arms = f"none,{agent or 'full'}"
        restart = self.restart if self.before is None else ""
        return (
            f"grpo-practice eval --arms {shlex.quote(arms)} --run {shlex.quote(self.run)}"
            f"{self.options}{restart}"
        )

    def missing(self, agent: str | None = None) -> dict[When, str]:
        """Return the scores that are not measured, each with the command that measures it."""
        command = self.measure(agent)
        known: dict[When, KnownScore | None] = {"before": self.before, "after": self.after}
        return {when: command for when, score in known.items() if score is None and command}


def before_after(store: Store, branch_id: int, run: str, library: Library) -> BeforeAfter:
    """Return the scores of the branch's agent without a library and with this one.

    Both are of evaluations that are complete and asked the very questions of the run's test set,
    with at least its attempts. Only the larger of two that asked differently is returned.
    """
    test = _TestSet.of(store, branch_id, store.read(runs.get, run).exp_id)
    before, after = test.scores(Library()), test.scores(library)
    common = before.keys() & after.keys()
    asked = max(common or before.keys() | after.keys(), key=test.rank, default=test.attempts)
    was, is_ = before.get(asked), after.get(asked)
    known = was or is_
    return BeforeAfter(
        run,
        was,
        is_,
        difference=sentence_of(store, was.run, is_.run) if was and is_ else None,
        tested=bool(test.dataset or known),
        restart=test.restart(),
        learnt=bool(library),
        options=test.options(asked, known) if known else "",
    )


def is_measured_without(store: Store, branch_id: int, run: str) -> bool:
    """Return whether the agent without a library was scored on the run's test set."""
    test = _TestSet.of(store, branch_id, store.read(runs.get, run).exp_id)
    return bool(test.scores(Library()))


def _evaluation(store: Store, branch_id: int) -> tuple[Mapping[str, Any], int, int | None]:
    """Return `evaluation.data` of a branch's config, `pass_k`, and `eval_data_truncate`."""
    config = parse_yaml(store.read(references.record, branch_id).config_text, "the stored config")
    part, most = config.at("evaluation"), config.at("practice").data.get("eval_data_truncate")
    k = part.data.get("pass_k")
    return (
        part.at("data").data,
        k if isinstance(k, int) else 1,
        most if isinstance(most, int) else None,
    )


@dataclass(frozen=True, slots=True)
class _TestSet:
    """The questions that a practice run's agent is tested on, and who is tested."""

    store: Store
    branch: Branch
    exp_id: str
    dataset: str | None
    """Dataset that the run's configuration names, or a file; None where it names none."""
    known: bool
    """Whether that name can be read: a variable's value is not on record."""
    newest: DatasetRow | None
    k: int
    """Attempts at a question, as configured."""
    truncated: int | None
    """Questions that evaluations on the way ask; None for all."""
    attempts: Attempts = field(default=frozenset())
    """All questions of the newest revision, as often as configured."""

    @classmethod
    def of(cls, store: Store, branch_id: int, exp_id: str) -> "_TestSet":
        """Return the test set of a branch of the experiment's practice run."""
        data, k, truncated = _evaluation(store, branch_id)
        name = data.get("dataset")
        newest = store.read(datasets.find, name) if name else None
        ids = store.read(datasets.sample_ids, newest.id) if newest else []
        branch = store.read(branches.load, branch_id)
        attempts = frozenset((i, k) for i in ids)
        known = name is not None and "${" not in name
        return cls(store, branch, exp_id, name, known, newest, k, truncated, attempts)

    def scores(self, library: Library) -> dict[Attempts, KnownScore]:
        """Return the newest score of this agent with a library, by what the evaluation asked."""
        found = dict[Attempts, KnownScore]()
        for run, branch_id in self._evaluations(library):
            evaluation = self.store.read(runs.get, run)
            asked = self._asked(evaluation, self.store.read(branches.load, branch_id))
            known = known_score(self.store, run) if asked is not None else None
            if asked is not None and known is not None:
                found.setdefault(asked, known)
        return found

    def rank(self, asked: Attempts) -> tuple[int, bool]:
        """Return a key for `max`: the most rollouts, and rather those that are configured."""
        return sum(k for _, k in asked), asked == self.attempts

    def options(self, asked: Attempts, known: KnownScore) -> str:
        """Return the options of an evaluation that makes the run's configuration ask this."""
        k, n = max((k for _, k in asked), default=self.k), len(asked)
        options = "" if self.dataset else f" --dataset {shlex.quote(known.dataset)}"
        options += f" -k {k}" if k != self.k else ""
        return options + (f" --limit {n}" if self.truncated == n < len(self.attempts) else "")

    def restart(self) -> str:
        """Return the option that begins the evaluation anew, where another one has its name."""
        found = self.store.read(runs.find, eval_name(self.exp_id))
        if found is None or found.head_branch is None:
            return ""
        branch = self.store.read(branches.load, found.head_branch)
        same = (
            scored_as(self.store, branch.id) == scored_as(self.store, self.branch.id)
            and branch.judge_id == self.branch.judge_id
            and (self.newest is None or branch.dataset_id == self.newest.id)
        )
        return "" if same else " --restart-step 0"

    def _evaluations(self, library: Library) -> Iterator[tuple[str, int]]:
        """Yield the evaluations of this agent with a library, and their branches.

        An exported agent has its library in its instructions: it is found by the prompt it was
        asked with, and counts when nothing else about it differs.
        """
        own = eval_name(self.exp_id, *([library_variant(library)] if library else []))
        if measured(self.store, self.branch.id, own) is not None:
            branch = self.store.read(runs.get, own).head_branch
            if branch is not None:
                yield own, branch
        agent = scored_as(self.store, self.branch.id)
        prompt = text_sha(system_prompt(str(agent.pop(INSTRUCTIONS, "")), library))
        for run, _, branch_id in self.store.read(scores.evaluations_with_prompt, prompt):
            other = scored_as(self.store, branch_id)
            other.pop(INSTRUCTIONS, None)
            if other == agent:
                yield run, branch_id

    def _asked(self, run: RunRow, branch: Branch) -> Attempts | None:
        """Return what an evaluation asked; None where that is not what the run is tested on."""
        if branch.judge_id != self.branch.judge_id:
            return None
        rows = self.store.read(steps.on_line, branch)
        slots = [slot for row in rows for slot in row.plan.slots]
        if any(0 < k < self.k for _, k in slots) or len({k for _, k in slots if k}) > 1:
            return None
        ids = {i for i, _ in slots}
        own = run.exp_id == self.exp_id
        if self.dataset is None or not self.known:
            return frozenset(slots) if own and not selects(run.name) else None
        if ids == {i for i, _ in self.attempts}:
            return frozenset(slots)
        # A run keeps the questions that it was tested on, also after they were uploaded anew.
        row = self.store.read(datasets.by_id, branch.dataset_id)
        if not own or not _is_named(row, self.dataset):
            return None
        all_ = self.store.read(datasets.sample_ids, row.id)
        return frozenset(slots) if ids in (set(all_), set(all_[: self.truncated])) else None


def _is_named(row: DatasetRow, dataset: str) -> bool:
    """Return whether a configuration means this dataset, or the file that it was made of."""
    if is_data_file(dataset):
        return Path(row.origin).name == Path(dataset).name
    return row.name == dataset
