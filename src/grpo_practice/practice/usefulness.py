"""Decides whether a step's comparisons were useful, and builds the error that stops the run."""

from collections.abc import Iterable, Sequence

from grpo_practice.core.errors import GrpoPracticeError
from grpo_practice.core.text import brief
from grpo_practice.core.types import Distilled, Operation
from grpo_practice.reports.learning_findings import UNFIT, advice, spoken
from grpo_practice.store.distillation import frequencies

LEAST = 3
"""Minimum number of comparisons that count as a failure, rather than bad luck, if all are
useless.
"""
SAID = 400
"""Number of characters of a failure, or of a quarantined text, that the error quotes."""


def are_useless(
    distilled: Sequence[Distilled], merged: Iterable[Operation] = (), least: int = LEAST
) -> bool:
    """Return True if every comparison failed or had all its texts quarantined.

    `merged` contains the operations of the merge; if all of them are quarantined, no proposal
    survives. A comparison that finds no lesson is useful. Fewer than `least` comparisons prove
    nothing.
    """
    lost = [op.quarantined for op in merged]
    none_left = bool(lost) and all(lost)
    return len(distilled) >= least and all(_is_useless(done, none_left) for done in distilled)


def _is_useless(done: Distilled, none_left: bool) -> bool:
    left = [op for op in done.operations if not (op.quarantined or (none_left and op.applies))]
    return not left and (done.failed is not None or bool(done.operations))


def are_repeated(distilled: Sequence[Distilled], merged: Iterable[Operation]) -> bool:
    """Return True if the comparisons must be repeated.

    Return False if only a setting keeps the texts out: the same replies can then be used.
    """
    texts = [op for op in _operations(distilled, merged) if op.quarantined]
    return any(done.failed for done in distilled) or any(op.rule != "one_site" for op in texts)


def _operations(distilled: Iterable[Distilled], merged: Iterable[Operation]) -> list[Operation]:
    return [*(op for done in distilled for op in done.operations), *merged]


def useless_error(
    step: int,
    distilled: Sequence[Distilled],
    merged: Sequence[Operation],
    kind: type[GrpoPracticeError],
) -> GrpoPracticeError:
    """Return the error that stops a run before the step is closed.

    Args:
        step: Number of the step.
        distilled: Comparisons of the step, all of them useless.
        merged: Operations of the step's merge.
        kind: Type of the error.
    """
    operations = _operations(distilled, merged)
    # Iterate in reverse, so that the first example of each kind is kept.
    texts: dict[str, Operation] = {
        op.rule: op for op in reversed(operations) if op.rule and op.quarantined
    }
    failed: dict[str, Distilled] = {
        done.failed_kind: done for done in reversed(distilled) if done.failed_kind
    }
    counts = frequencies(
        [*(done.failed_kind for done in distilled if done.failed_kind)]
        + [op.rule for op in operations if op.rule in texts]
    )
    reason = next(iter(counts))
    if reason in texts:
        op = texts[reason]
        told = f"{op.refused}: {brief(op.text or '', SAID)}"
        change = advice(reason) if reason == "one_site" else UNFIT
    else:
        told, change = brief(failed[reason].failed or "", SAID), advice(reason)
    why = ", ".join(
        f"{n} {'quarantined as ' if one in texts else ''}{spoken(one)}" for one, n in counts.items()
    )
    repeats = "repeats" if are_repeated(distilled, merged) else "keeps"
    return kind(
        f"no comparison of step {step} was useful ({why}); {told}",
        hint=f"{change}; then run the same command again: it keeps the rollouts and {repeats} the"
        " comparisons",
    )
