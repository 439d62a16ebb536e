"""Comparable scores of a practice run's agent with and without its library."""

import shlex
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from grpo_practice.core.types import Library
from grpo_practice.reports.compared import conclusion_of
from grpo_practice.reports.conclusion import Conclusion
from grpo_practice.reports.known_scores import KnownScore, is_dataset, known_score
from grpo_practice.store import Store, branches, datasets, steps
from grpo_practice.store.identity import instructions_of, prompt_sha
from grpo_practice.store.queries import evaluations, runs
from grpo_practice.store.queries.evaluations import Evaluation
from grpo_practice.store.records import Branch, DatasetRow
from grpo_practice.store.run_names import eval_name

Attempts = frozenset[tuple[int, int]]
"""Samples of an evaluation, each with its number of rollouts."""
When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Scores on the same questions, with the same verify function and number of attempts."""

    run: str
    before: KnownScore | None
    """Score without the library; None if it was not measured on these questions."""
    after: KnownScore | None
    """Score with the library."""
    tested: bool
    """Whether the test questions are known."""
    restart: str = ""
    """Option that restarts the evaluation of this name if it measured something else, or empty."""
    conclusion: Conclusion | None = None
    """Difference between the two scores in words; None if either is missing."""
    learnt: bool = True
    """Whether the library holds any experience."""
    options: str = ""
    """Options that select the known score's questions, if the configuration selects others."""

    def measure(self, agent: str | None = None) -> str | None:
        """Return the command that measures the missing scores; `agent` is the exported agent file.

        Return None if no score is missing, or if the test questions are unknown.
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
        """Return the missing scores, each with the command that measures it."""
        command = self.measure(agent)
        known: dict[When, KnownScore | None] = {"before": self.before, "after": self.after}
        return {when: command for when, score in known.items() if score is None and command}


def before_after(store: Store, branch_id: int, run: str, library: Library) -> BeforeAfter:
    """Return the scores of the branch's agent without a library and with this library.

    Both scores come from complete evaluations on exactly the questions of the run's test set, with
    at least its number of attempts. If the two evaluations used different questions, only the score
    of the larger evaluation is returned.
    """
    branch = store.read(branches.load, branch_id)
    test = _TestSet.of(store, branch, store.read(runs.get, run).exp_id)
    before, after = test.scores(Library()), test.scores(library)
    common = before.keys() & after.keys()
    # Prefer attempts that both evaluations share, because only these are comparable.
    asked = max(common or before.keys() | after.keys(), key=test.rank, default=test.attempts)
    was, is_ = before.get(asked), after.get(asked)
    known = was or is_
    return BeforeAfter(
        run,
        was,
        is_,
        conclusion=conclusion_of(store, was.run, is_.run) if was and is_ else None,
        tested=bool(test.dataset or known),
        restart=test.restart(),
        learnt=bool(library),
        options=test.options(asked, known) if known else "",
    )


def is_measured_without(store: Store, branch: Branch, exp_id: str) -> bool:
    """Return whether the agent without a library was scored on the run's test set.

    The branch may not be stored yet.
    """
    return bool(_TestSet.of(store, branch, exp_id).scores(Library()))


@dataclass(frozen=True, slots=True)
class _TestSet:
    """Test questions for a practice run's agent, and the branch that describes the agent."""

    store: Store
    branch: Branch
    exp_id: str
    newest: DatasetRow | None
    """Newest revision of the configured dataset; None if there is no such dataset."""
    attempts: Attempts = field(default=frozenset())
    """All questions of the newest revision, each with the configured number of rollouts."""

    @classmethod
    def of(cls, store: Store, branch: Branch, exp_id: str) -> "_TestSet":
        """Return the test set for a branch of the experiment's practice run."""
        name = branch.tests.dataset
        newest = store.read(datasets.find, name) if name else None
        ids = store.read(datasets.sample_ids, newest.id) if newest else []
        attempts = frozenset((i, branch.tests.k) for i in ids)
        return cls(store, branch, exp_id, newest, attempts)

    @property
    def dataset(self) -> str | None:
        """Dataset or file that the run's configuration names."""
        return self.branch.tests.dataset

    def scores(self, library: Library) -> dict[Attempts, KnownScore]:
        """Return the scores of this agent with a library, by the attempts of the evaluation."""
        found = dict[Attempts, KnownScore]()
        # An exported agent holds its library in its instructions, so its prompt is the same.
        prompt = prompt_sha(instructions_of(self.branch.identity), library)
        of = partial(evaluations.of_agent, exp_id=self.exp_id)
        for evaluation in self.store.read(of, self.branch, prompt):
            asked = self._asked(evaluation)
            known = known_score(self.store, evaluation.run) if asked is not None else None
            if asked is not None and known is not None:
                found.setdefault(asked, known)
        return found

    def rank(self, asked: Attempts) -> tuple[int, bool]:
        """Return a key for `max`: most rollouts first, then the configured attempts."""
        return sum(k for _, k in asked), asked == self.attempts

    def options(self, asked: Attempts, known: KnownScore) -> str:
        """Return the options that make the run's configuration select these questions."""
        tests, n = self.branch.tests, len(asked)
        k = max((k for _, k in asked), default=tests.k)
        options = "" if self.dataset else f" --dataset {shlex.quote(known.dataset)}"
        # Another experiment's number of attempts is no reason to play that many here.
        own = self.store.read(runs.get, known.run).exp_id == self.exp_id
        options += f" -k {k}" if own and k != tests.k else ""
        # If an evaluation has fewer questions than the dataset has now, it asked the first of them.
        return options + (f" --limit {n}" if tests.limit == n < len(self.attempts) else "")

    def restart(self) -> str:
        """Return the option that restarts the evaluation if another one already has its name."""
        branch = self.store.read(runs.newest_branch, eval_name(self.exp_id))
        if branch is None:
            return ""
        mine = prompt_sha(instructions_of(self.branch.identity), Library())
        same = (
            (branch.agent.agent_sha, branch.agent.prompt_sha) == (self.branch.agent.agent_sha, mine)
            and branch.verifier_id == self.branch.verifier_id
            and (self.newest is None or branch.dataset_id == self.newest.id)
        )
        return "" if same else " --restart-step 0"

    def _asked(self, evaluation: Evaluation) -> Attempts | None:
        """Return the attempts of an evaluation; None if they do not match the run's test set."""
        branch, tests = self.store.read(branches.load, evaluation.branch_id), self.branch.tests
        rows = self.store.read(steps.on_line, branch)
        slots = [slot for row in rows for slot in row.plan.slots]  # k is 0 if it cannot be scored
        if any(0 < k < tests.k for _, k in slots) or len({k for _, k in slots if k}) > 1:
            return None
        ids = {i for i, _ in slots}
        own = evaluation.exp_id == self.exp_id
        if self.dataset is None:
            return frozenset(slots) if own else None
        if ids == {i for i, _ in self.attempts}:
            return frozenset(slots)
        # A run keeps the questions that it was tested on, even after a new upload replaced them.
        if not own or not is_dataset(evaluation, self.dataset):
            return None
        all_ = self.store.read(datasets.sample_ids, branch.dataset_id)
        return frozenset(slots) if ids in (set(all_), set(all_[: tests.limit])) else None
