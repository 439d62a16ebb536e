"""Practice that produced an evaluation's library: its questions, other libraries, and cost."""

from dataclasses import dataclass

from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.text import folded
from grpo_practice.store import Store, branches, libraries, steps
from grpo_practice.store.queries import arms, runs, scores
from grpo_practice.store.records import EFFECT, Branch, RunRow


@dataclass(frozen=True, slots=True)
class Choice:
    """Libraries of one practice run that were scored on the same questions."""

    practice: str
    scored: int
    """Number of distinct libraries, including the evaluated one."""


def known_questions(store: Store, evaluation: RunRow, branch: Branch) -> set[str]:
    """Return the folded questions that the evaluation's library learnt from or was selected by.

    Questions of the experiment's current practice run are included, because the library of some
    agents cannot be identified.
    """
    sha = branch.played.library_sha
    behind = store.read(arms.libraries_behind, sha) if sha else set[tuple[str, int]]()
    # A restarted run learns on another branch: each library belongs to the branch that made it.
    ends = {branch_id for _, branch_id in behind}
    if (practice := _practice_branch(store, evaluation.exp_id)) is not None:
        ends.add(practice.id)
    used = {segment.branch_id for end in ends for segment in store.read(branches.line, end)}
    names = {evaluation.exp_id, *(run for run, _ in behind)}
    for run in store.read(runs.all_runs):
        chosen = run.parent_run in names and run.purpose == "select"
        # These questions also decided which experiences a pruned library kept.
        pruned = run.exp_id in names and run.purpose == EFFECT
        if (chosen or pruned) and run.head_branch is not None:
            used.add(run.head_branch)
    samples = store.read(arms.planned_samples, used)
    return {folded(text) for text in store.read(arms.question_texts, samples).values()}


def choice_of(store: Store, evaluation: RunRow, branch: Branch) -> Choice | None:
    """Return the libraries that this one was chosen from; None if it is the last of a run."""
    practices = _makers(store, evaluation, branch)
    if not practices:
        return None
    sha = branch.played.library_sha
    for practice in practices:
        found = _practice_branch(store, practice)
        outs = [row.library_out for row in store.read(steps.on_line, found)] if found else []
        closed = [out for out in outs if out]
        # Compare by text: a run may produce the same library twice.
        # The last library of one of its runs was not chosen from several.
        if not closed or library_sha(store.read(libraries.load, closed[-1])) == sha:
            return None
    made = store.read(arms.hashes_made, practices[0])
    asked = _asked(store, branch)
    scored = set[bytes]()
    for run in store.read(runs.all_runs):
        if not run.has_score or run.head_branch is None:
            continue
        other = store.read(branches.load, run.head_branch)
        if (known := other.played.library_sha) in made and known and _asked(store, other) & asked:
            scored.add(known)
    return Choice(practices[0], len(scored))


def practice_cost(store: Store, evaluation: RunRow, branch: Branch) -> int | None:
    """Return the cost of the practice that made the evaluation's library, in micro-dollars.

    Return None if the cost is unknown or there is no library.
    """
    practices = _makers(store, evaluation, branch)
    if not practices:
        return None
    usage = store.read(scores.usage, practices[0], children=False)
    unpriced = store.read(scores.unpriced, practices[0], children=False)
    return None if unpriced else usage.cost_micro


def _makers(store: Store, evaluation: RunRow, branch: Branch) -> list[str]:
    """Return the practice runs that made the library, the evaluation's own experiment first."""
    sha = branch.played.library_sha
    found = store.read(arms.makers, sha) if sha else set[str]()
    return sorted(found, key=lambda run: (run != evaluation.exp_id, run))


def _asked(store: Store, branch: Branch) -> set[int]:
    return store.read(arms.planned_samples, {segment.branch_id for segment in branch.line})


def _practice_branch(store: Store, exp_id: str) -> Branch | None:
    """Return the branch of the practice run with this name; None if it never started."""
    run = store.read(runs.find, exp_id)
    if run is None or run.kind != "practice" or run.head_branch is None:
        return None
    return store.read(branches.load, run.head_branch)
