"""Comparison of stored evaluations: pairs their questions and notes their other differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from shlex import quote
from typing import Literal

from grpo_practice.core import stats
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.stats import Question
from grpo_practice.core.stats.paired import (
    Difference,
    Look,
    Verdict,
    adjusted,
    difference,
    verdicts,
)
from grpo_practice.core.text import folded
from grpo_practice.reports.comparison import Arm, ComparisonReport, Contrast, judged_of
from grpo_practice.reports.conclusion import DETECT, Conclusion
from grpo_practice.reports.known_scores import known_score
from grpo_practice.reports.side_by_side import answers_of, disagreed, means_of
from grpo_practice.store import Store, branches, libraries, steps
from grpo_practice.store.identity import agent_changes, verify_of
from grpo_practice.store.queries import arms, looks, runs, scores
from grpo_practice.store.records import EFFECT, Branch, RunRow
from grpo_practice.store.run_names import eval_name
from grpo_practice.verify import READ_NO_ANSWER
from grpo_practice.verify.answers import gold_texts

SHOWN_PAIRS = 5
"""Number of questions on which arms disagree whose answers are shown."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One arm of a comparison, loaded from the database."""

    run: RunRow
    branch: Branch
    questions: list[Question]
    arm: Arm


def compare_evaluations(
    store: Store,
    named: Mapping[str, str] | Sequence[str],
    *,
    detect: float = DETECT,
    required: Verdict | None = None,
    answers: int | None = 0,
    contrasts: Sequence[tuple[str, str]] | Literal["each"] | None = None,
) -> ComparisonReport:
    """Compare evaluations with the first of them, which is the baseline, or each with each.

    Args:
        store: The database.
        named: Evaluation names, or a mapping from display names to evaluations.
        detect: Difference, as a share, for which the needed number of questions is computed.
        required: Verdict that each contrast must have, if any.
        answers: Number of questions per contrast whose answers are returned, largest change first;
            None omits answers and notes, for callers that need only the conclusion.
        contrasts: Pairs of names; each contrast is the second minus the first. None compares every
            other evaluation with the first; "each" compares each with each later one, and returns
            the answers to the questions on which they disagree most.

    Raises:
        ConfigError: The evaluations cannot be compared.
    """
    names = named if isinstance(named, Mapping) else {name: name for name in named}
    sides = {name: _side(store, name, run) for name, run in names.items()}
    # If the function extracted answers in one arm, count missing answers in all its arms.
    reading = {side.branch.verifier_id for side in sides.values() if side.arm.extracts}
    first, *others = sides
    each = contrasts == "each"
    chosen = combinations(names, 2) if contrasts == "each" else contrasts
    wanted = [(sides[a], sides[b]) for a, b in chosen or [(first, b) for b in others]]
    for baseline, other in wanted:
        _refuse(baseline, other)
    pairs = [_differences(store, baseline, other) for baseline, other in wanted]
    judged = [judged_of(pair.all, pair.new) for pair in pairs]
    at = [pair.look for pair in pairs]
    if each:  # one look, so that Holm's procedure covers all pairs, also of arms played before
        at = [Look(max(look.number for look in at), max(len(at), *(x.together for x in at)))]
        at *= len(pairs)
    # All at once, because each p value is adjusted for the number of contrasts.
    ps = adjusted([found.p for found in judged], at)
    found = [
        Contrast(
            baseline.run.name,
            other.run.name,
            pair.all,
            verdict,
            p,
            look,
            pair.known,
            pair.new,
            () if answers is None else _notes(store, baseline, other),
            (baseline.arm.k, other.arm.k),
            {q.key: q.cluster for q in baseline.questions if q.cluster},
        )
        for (baseline, other), pair, look, verdict, p in zip(
            wanted, pairs, at, verdicts(judged, at), ps, strict=True
        )
    ]
    apart = disagreed([means_of(side.questions) for side in sides.values()]) if each else []
    shown = {*apart[:SHOWN_PAIRS], *(int(q.key) for c in found for q in c.moved[: answers or 0])}
    samples = {int(q.key) for pair in pairs for q in pair.all.questions}
    return ComparisonReport(
        [replace(side.arm, extracts=side.branch.verifier_id in reading) for side in sides.values()],
        found,
        {} if answers is None else store.read(arms.question_texts, samples),
        _practice_cost(store, wanted[-1][1]),
        detect,
        sides[first].run.simulated,
        contrasts is not None,
        required is None or all(contrast.verdict == required for contrast in found),
        {
            side.run.name: answers_of(store, side.branch, side.arm.k, shown)
            for side in (sides.values() if shown else ())
        },
        each=each,
        disagreed=apart,
        expected={s: gold_texts(gold) for s, gold in store.read(arms.answers, shown).items()},
    )


def conclusion_of(store: Store, before: str, after: str) -> Conclusion | None:
    """Return the difference between two evaluations in words; None if they are not comparable."""
    if before == after:  # the run has learnt nothing
        return None
    try:
        return compare_evaluations(store, [before, after], answers=None).conclusions[0]
    except ConfigError:
        return None


def gain_of(store: Store, evaluation: str, exp_id: str) -> Conclusion | None:
    """Return the difference between an evaluation of EXP and `EXP/eval` in words.

    Return None unless both are complete and comparable.
    """
    ends = (eval_name(exp_id), evaluation)
    return conclusion_of(store, *ends) if all(known_score(store, run) for run in ends) else None


def _side(store: Store, named: str, name: str) -> _Side:
    run = store.read(runs.get, name)
    if not run.has_score:
        article = "an" if run.purpose == EFFECT else "a"
        what = f"{name} is {article} {run.shown_kind} run, so it has no score"
        raise ConfigError(what, hint="grpo-practice runs list")
    if run.head_branch is None:
        raise ConfigError(
            f"{name} was never started", hint=f"grpo-practice runs show {quote(name)}"
        )
    branch = store.read(branches.load, run.head_branch)
    questions = store.read(scores.questions, branch)
    k = max((q.planned for q in questions), default=1)
    totals = store.read(arms.arm_totals, branch)
    arm = Arm(run.name, named, stats.score(questions, k), totals, k, extracts(branch, totals))
    return _Side(run, branch, questions, arm)


def extracts(branch: Branch, totals: arms.ArmTotals) -> bool:
    """Return whether the verify function extracts answers from responses, even from wrong ones."""
    name = verify_of(branch.identity)
    # A user's function that extracted nothing here may still do so in another arm.
    return totals.unread < totals.scored if ":" in name else name not in READ_NO_ANSWER


def _refuse(baseline: _Side, other: _Side) -> None:
    """Raise ConfigError if the two evaluations cannot be compared."""
    if baseline.run.simulated != other.run.simulated:
        one, two = sorted((baseline, other), key=lambda side: not side.run.simulated)
        raise ConfigError(
            f"{one.run.name} is simulated, and {two.run.name} is not, so they cannot be compared",
            hint="grpo-practice runs list",
        )
    if baseline.branch.verifier_id != other.branch.verifier_id:
        verify, theirs = (verify_of(side.branch.identity) for side in (baseline, other))
        how = f"{verify} and {theirs}" if verify != theirs else f"two versions of {verify}"
        raise ConfigError(
            f"{baseline.run.name} and {other.run.name} are scored by {how}",
            hint=f"grpo-practice eval --rejudge --verify {quote(verify)}"
            f" --run {quote(other.run.name)}",
        )


@dataclass(frozen=True, slots=True)
class _Pair:
    all: Difference
    known: int
    new: Difference | None
    look: Look


def _differences(store: Store, baseline: _Side, other: _Side) -> _Pair:
    found = difference(baseline.questions, other.questions)
    if found is None:
        raise ConfigError(
            f"{baseline.run.name} and {other.run.name} have no scored question in common",
            hint="grpo-practice runs list",
        )
    seen = _known_questions(store, baseline) | _known_questions(store, other)
    # Loading texts is slow, and they are needed only if there are known questions.
    asked = {int(q.key) for q in found.questions} if seen else ()
    texts = store.read(arms.question_texts, asked)
    known = {str(sample) for sample, text in texts.items() if folded(text) in seen}
    rest = [q for q in baseline.questions if q.key not in known]
    new = difference(rest, other.questions) if known else None
    asked = {int(q.key) for q in judged_of(found, new).questions}
    sides = [(side.run, side.branch) for side in (baseline, other)]
    return _Pair(found, len(known), new, store.read(looks.look_of, sides, asked))


def _notes(store: Store, baseline: _Side, other: _Side) -> list[str]:
    """Return sentences about other differences between two arms, and about selection bias."""
    notes = list[str]()
    if apart := _apart(baseline.arm, other.arm):
        notes.append(apart)
    changes = agent_changes(baseline.branch.identity, other.branch.identity)
    notes += [f"they also differ in {change}" for change in changes]
    chosen = (_chosen(store, side) for side in (baseline, other))
    return [*notes, *(note for note in chosen if note)]


def _apart(a: Arm, b: Arm) -> str | None:
    """Return how far apart in time two arms were played; None if they overlap by half or more."""
    if not (a.totals.begun and b.totals.begun):
        return None
    one, two = ([_time(x.totals.begun), _time(x.totals.ended)] for x in (a, b))
    shared = (min(one[1], two[1]) - max(one[0], two[0])).total_seconds()
    shorter = min((end - begin).total_seconds() for begin, end in (one, two))
    if shared >= shorter / 2:
        return None
    gap = max(-shared, 0.0)
    hours = gap / 3_600
    how = f"{hours:.0f} h apart" if hours >= 1 else f"{max(gap / 60, 0):.0f} min apart"
    how = "one after the other" if gap < 60 else how
    how = "with less than half of their time in common" if shared > 0 else how
    return (
        f"they were played {how}, so changes at the endpoint in between are part of this difference"
    )


def _time(stored: str) -> datetime:
    return datetime.fromisoformat(stored).replace(tzinfo=UTC)


def _chosen(store: Store, side: _Side) -> str | None:
    """Return a warning if the library is not the last one of a run that made it."""
    practices, sha = _makers(store, side), side.branch.agent.library_sha
    # The last library of one of its runs was not chosen from several.
    if not practices or {_last_library(store, one) for one in practices} & {None, sha}:
        return None
    said = f"{side.run.name} is not the last library of {practices[0]}"
    made, asked = store.read(arms.hashes_made, practices[0]), _asked(store, side.branch)
    scored = set[bytes]()
    for run in store.read(runs.all_runs):
        if run.has_score and run.head_branch is not None:
            other = store.read(branches.load, run.head_branch)
            known = other.agent.library_sha
            if known and known in made and _asked(store, other) & asked:
                scored.add(known)
    if len(scored) < 2:
        return said
    return (
        f"{said}, and {len(scored)} of them were scored on these questions: the best of several"
        " looks better than it is (use practice.select_dataset)"
    )


def _last_library(store: Store, practice: str) -> bytes | None:
    """Return the hash of the last library of a practice run; None if no step has closed."""
    branch = _practice_branch(store, practice)
    outs = [row.library_out for row in store.read(steps.on_line, branch)] if branch else []
    closed = [out for out in outs if out]
    # By hash, because a run may produce the same library twice.
    return library_sha(store.read(libraries.load, closed[-1])) if closed else None


def _known_questions(store: Store, side: _Side) -> set[str]:
    """Return the folded questions that the evaluation's library learnt from or was selected by.

    Questions of the experiment's current practice run are included, because the library of some
    agents cannot be identified.
    """
    exp_id, sha = side.run.exp_id, side.branch.agent.library_sha
    behind = store.read(arms.libraries_behind, sha) if sha else set[tuple[str, int]]()
    # A restarted run learns on another branch, so each library belongs to the branch that made it.
    ends = {branch_id for _, branch_id in behind}
    if (practice := _practice_branch(store, exp_id)) is not None:
        ends.add(practice.id)
    used = {segment.branch_id for end in ends for segment in store.read(branches.line, end)}
    names = {exp_id, *(run for run, _ in behind)}
    for run in store.read(runs.all_runs):
        chosen = run.parent_run in names and run.purpose == "select"
        # These questions also decided which experiences a pruned library kept.
        pruned = run.exp_id in names and run.purpose == EFFECT
        if (chosen or pruned) and run.head_branch is not None:
            used.add(run.head_branch)
    samples = store.read(arms.planned_samples, used)
    return {folded(text) for text in store.read(arms.question_texts, samples).values()}


def _practice_cost(store: Store, side: _Side) -> int | None:
    """Return the cost of the practice that made the evaluation's library, in micro-dollars.

    Return None if the cost is unknown or there is no library.
    """
    practices = _makers(store, side)
    if not practices:
        return None
    usage = store.read(scores.usage, practices[0], children=False)
    unpriced = store.read(scores.unpriced, practices[0], children=False)
    return None if unpriced else usage.cost_micro


def _makers(store: Store, side: _Side) -> list[str]:
    """Return the practice runs that made the library, the evaluation's own experiment first."""
    sha = side.branch.agent.library_sha
    found = store.read(arms.makers, sha) if sha else set[str]()
    return sorted(found, key=lambda run: (run != side.run.exp_id, run))


def _asked(store: Store, branch: Branch) -> set[int]:
    return store.read(arms.planned_samples, {segment.branch_id for segment in branch.line})


def _practice_branch(store: Store, exp_id: str) -> Branch | None:
    """Return the branch of the practice run with this name; None if it never started."""
    run = store.read(runs.find, exp_id)
    practised = run is not None and run.kind == "practice"
    return store.read(runs.newest_branch, exp_id) if practised else None
