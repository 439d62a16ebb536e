"""Findings about a practice run's learning: failed comparisons, refusals, equal attempts."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from grpo_practice.core.findings import Finding, failure, warning
from grpo_practice.core.text import brief, count
from grpo_practice.core.types import QUARANTINE, QuarantineRule, RefusedRule, TeacherFailure
from grpo_practice.reports.answer_findings import no_answer
from grpo_practice.store.distillation import HARMLESS, added
from grpo_practice.store.distillation import Distillation as Distillation
from grpo_practice.store.identity import ATTEMPTS_SHA
from grpo_practice.store.records import StepRow as StepRow

MANY = 5
"""A finding is reported if more than 1 in this number of comparisons or proposals is lost."""
PRACTISE = "grpo-practice practice"
REASON = 160
"""Maximum number of characters shown from the error of a failed merge."""
ALIKE = "all attempts of every group gave the same text"
CACHED = (
    "a cache between the agent and its model repeats its answers, or the temperature is 0 and"
    " the endpoint ignores seeds"
)

Reason = TeacherFailure | RefusedRule | QuarantineRule

_TEACHER = "practice.teacher_model"
_FAILED: Mapping[str, tuple[str, str]] = {
    "unreadable": (
        "the reply was not in the requested form",
        f"the model may be too weak to teach: choose another ({_TEACHER}), or correct"
        " practice.prompts_dir",
    ),
    "empty": (
        "the reply was empty",
        f"choose another model ({_TEACHER}), or raise its max_tokens if it reasons first",
    ),
    "cut": (
        "the token limit cut off the reply",
        f"the model may be too weak to teach: choose another ({_TEACHER}), or raise"
        f" {_TEACHER}.model_settings.max_tokens",
    ),
    "refused": (
        "the teacher refused",
        f"choose another model ({_TEACHER}), or reword practice.learning_objective",
    ),
    "content_filter": (
        "a content filter withheld the reply",
        f"choose another model or endpoint ({_TEACHER})",
    ),
    "context_overflow": (
        "the request was too long for the teacher",
        f"lower practice.teacher_context, or choose a model that accepts more ({_TEACHER})",
    ),
    "provider": ("the endpoint gave no usable answer", "run `grpo-practice doctor`"),
}
"""`TeacherFailure` → its meaning and the advice for it."""
_QUARANTINED = "review the texts and the reason for each"
ONE_SITE = (
    "name the site in practice.trusted_sites if you trust it, or let a person decide with"
    " practice.approve: true"
)
"""Advice if a lesson is supported by only one web site."""
UNFIT = f"choose another model ({_TEACHER}), or correct practice.prompts_dir"
"""Advice if the teacher does not follow its instructions."""
_REFUSED: Mapping[str, str] = {
    "unknown_id": UNFIT,
    "second_operation": UNFIT,
    "no_text": UNFIT,
    "too_long": "ask for shorter texts in practice.learning_objective or practice.prompts_dir",
    "beyond_limit": "raise practice.num_experiences_per_query",
    "library_full": "export the library as it is, or start again with another exp_id",
}
"""`RefusedRule`, except harmless rules → advice. Exceeding a limit is not the model's fault."""


def practise_command(last: str) -> str:
    """Return the command that resumes a practice run: its last command if that was `practice`."""
    return last if last.startswith(PRACTISE) else PRACTISE


def _restart(practise: str, step: int, rows: Sequence[StepRow]) -> str:
    """Return the command that replays all steps from this step on.

    A run that was already restarted at this step is restarted there again only with `--again`,
    except at step 0.
    """
    begun = next(row.plan.step for row in rows if row.branch_id == rows[-1].branch_id)
    return f"{practise} --restart-step {step}{' --again' if 0 < step == begun else ''}"


def advice(reason: str) -> str:
    """Return the advice for a reason."""
    if reason in _FAILED:
        return _FAILED[reason][1]
    if reason == "one_site":
        return ONE_SITE
    return _REFUSED.get(reason, _QUARANTINED)


def counted_steps(rows: Sequence[StepRow]) -> dict[int, Distillation]:
    """Return the counts of the closed steps of a practice run, by step."""
    found = {row.plan.step: Distillation.of(row.stats) for row in rows if row.closed}
    return {step: counts for step, counts in found.items() if counts is not None}


def distillation_of(rows: Sequence[StepRow]) -> Distillation | None:
    """Return the counts over all steps of a practice run; None if no step has any."""
    counted = counted_steps(rows)
    return Distillation.total(list(counted.values())) if counted else None


def learning_findings(
    run: str,
    rows: Sequence[StepRow],
    outcomes: Mapping[str, int],
    *,
    asked_all: bool,
    held: int,
    practise: str = PRACTISE,
) -> list[Finding]:
    """Return the findings that explain why steps of a practice run learnt little or nothing.

    Args:
        run: Name of the run.
        rows: Steps of the run.
        outcomes: Number of the run's rollouts per outcome.
        asked_all: Whether the agent sent a model request for each answer.
        held: Number of new texts that are waiting for approval.
        practise: Command that resumes the run.
    """
    found = [*_failed_merges(rows, practise), *shortfalls(run, rows, practise)]
    # Each of these is reason enough to have learnt nothing, and an open run may still learn.
    if found or no_answer(run, outcomes, map(_mean, rows)) or not all(row.closed for row in rows):
        return found
    return _nothing_learnt(run, rows, asked_all=asked_all, held=held)


def recorded_finding(identity: Mapping[str, Any]) -> list[Finding]:
    """Return the limit of a run that learnt from recorded attempts; [] for any other run."""
    if ATTEMPTS_SHA not in identity:
        return []
    return [
        warning(
            "recorded",
            "no recorded attempt used the library, so rewards say nothing about its experiences;"
            " and whoever recorded the attempts chose them",
            "measure the library on questions that are not among the recorded ones:"
            " eval --arms none,full",
        )
    ]


def _mean(row: StepRow) -> float | None:
    return (row.stats or {}).get("mean_reward")


def _failed_merges(rows: Sequence[StepRow], practise: str) -> list[Finding]:
    """Return a problem for each step whose proposals could not be merged."""
    found = list[Finding]()
    for row in rows:
        if row.status == "merge_failed":
            step, why = row.plan.step, (row.stats or {}).get("merge_failed")
            reason = f": {brief(str(why), REASON)}" if why else ""
            text = f"the merge of step {step} failed, and the library is unchanged{reason}"
            found.append(failure("merge", text, command=_restart(practise, step, rows)))
    return found


def shortfalls(run: str, rows: Sequence[StepRow], practise: str = PRACTISE) -> list[Finding]:
    """Return findings if too many comparisons failed or too many proposals were lost.

    If nothing at all was learnt, the finding is a problem and the run has failed.
    """
    steps = counted_steps(rows)
    sums = Distillation.total(list(steps.values()))
    rules: list[Mapping[Any, int]] = [sums.refused, sums.quarantined]
    refused = {r: n for r, n in added(rules).items() if r not in HARMLESS}
    failed = {step: sum(counts.failed.values()) for step, counts in steps.items()}
    dropped = {step: counts.lost for step, counts in steps.items()}
    unchanged = not sums.confirmed and not sums.removed
    found = list[Finding]()
    counted: list[tuple[str, Mapping[int, int], int, Mapping[Any, int], bool]] = [
        ("comparisons", failed, sums.informative, sums.failed, True),
        ("proposals", dropped, sums.proposals, refused, unchanged),
    ]
    for about, lost, all_, reasons, may_be_total in counted:
        n = sum(lost.values())
        if n * MANY <= all_:  # whole numbers, so that exactly 1 in 5 is not a matter of rounding
            continue
        reason = next(iter(reasons))  # the most common one
        step = min(step for step, some in lost.items() if some)
        command = _restart(practise, step, rows)
        if reason in QUARANTINE:
            command = f"grpo-practice experiences list --quarantined --run {quote(run)}"
        text = _share(about, n, all_) + ("" if len(reasons) == 1 else "mostly ") + _why(reason)
        total = may_be_total and n == all_
        finding = failure if total else warning
        text = "nothing was learnt: " + text if total else text
        found.append(finding(about, text, advice(reason), command, (n, all_)))
    return found


def _share(about: str, n: int, of: int) -> str:
    noun = about.removesuffix("s")
    share = f"{n} of {count(of, noun)}"
    if n == of:
        share = f"all {count(of, noun)}" if of > 1 else f"the only {noun}"
    return f"{share} {'failed' if about == 'comparisons' else 'came to nothing'}, "


def _why(reason: Reason) -> str:
    if reason in _FAILED:
        return f"because {_FAILED[reason][0]}"
    how = "quarantined" if reason in QUARANTINE else "refused"
    return f"{how} by the rule {spoken(reason)!r}"


def _nothing_learnt(
    run: str, rows: Sequence[StepRow], *, asked_all: bool, held: int
) -> list[Finding]:
    """Return the reasons, as far as known, why a run without failed steps learnt nothing."""
    stats = [row.stats or {} for row in rows]
    means = set(map(_mean, rows))
    groups = sum(sum(s.get("groups", {}).values()) for s in stats)
    hard = " (too hard: every attempt failed)" if means == {0.0} else ""
    easy = " (too easy: every attempt was right)" if means == {1.0} else ""
    look = f"grpo-practice rollouts show {quote(run)}"
    if groups and groups == sum(s.get("alike", 0) for s in stats):
        text = f"{ALIKE}, so there was nothing to compare{hard}{easy}"
        if not asked_all:
            return [failure("answers", f"{text}; some came without a model request", CACHED, look)]
        return [warning("answers", text, CACHED, look)]
    if not rows or stats[-1].get("experiences") != 0:
        return []
    if held:
        listed = f"grpo-practice experiences list --run {quote(run)}"
        return [warning("library", "new experiences are held for approval", None, listed)]
    look_at_run = f"grpo-practice runs show {quote(run)}"
    if any(s.get("informative") for s in stats):
        proposed = any(counts.proposals for counts in counted_steps(rows).values())
        text = "no proposal reached the library" if proposed else "no comparison proposed anything"
        return [warning("library", text, None, look_at_run)]
    text = (
        f"in every group all attempts scored the same, so there was nothing to compare{hard}{easy}"
    )
    return [warning("library", text, None, look)]


def spoken(kind: str) -> str:
    """Return the name of a kind or rule in words: `gives answer away`."""
    return kind.replace("_", " ")
