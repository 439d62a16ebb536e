"""Select the evaluations for a comparison."""

from collections.abc import Sequence
from shlex import quote

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.stats.paired import Verdict
from grpo_practice.reports.before_after import before_after
from grpo_practice.reports.compared import compare_evaluations
from grpo_practice.reports.comparison import ComparisonReport
from grpo_practice.run.library_refs import library_of
from grpo_practice.store import Store
from grpo_practice.store.queries import runs


def compare(
    store: Store,
    names: Sequence[str],
    *,
    detect: float = 0.05,
    required: Verdict | None = None,
    answers: int = 0,
) -> ComparisonReport:
    """Compare runs with the first of them, which is the baseline.

    Args:
        store: The database.
        names: Evaluations, or practice runs, which stand for the evaluation of their last library.
        detect: Difference, as a share, for which the report gives the number of questions needed.
        required: Verdict that each contrast has to have, if any.
        answers: Number of questions per contrast whose answers to return, largest change first.

    Raises:
        ConfigError: A run does not exist or is named twice, or the runs cannot be compared.
    """
    found = dict[str, str]()
    for name in names:
        run = _evaluation(store, name)
        same = next((known for known, other in found.items() if other == run), None)
        if same is not None:
            raise ConfigError(
                f"{same} and {name} are the same evaluation, {run}", hint="grpo-practice runs list"
            )
        found[name] = run
    return compare_evaluations(store, found, detect=detect, required=required, answers=answers)


def _evaluation(store: Store, name: str) -> str:
    """Return the evaluation that a name stands for."""
    run = store.read(runs.named, name)
    name, kind = run.name, run.kind
    if kind == "train":
        raise ConfigError(
            f"{name} is a training run, not an evaluation",
            hint=f"evaluate its weights and the base model, then compare these evaluations:"
            f" grpo-practice eval --run {quote(name)} --arms base,trained",
        )
    if kind != "practice":
        return name
    found = library_of(store, name)
    known = before_after(store, found.branch, found.run, found.library)
    if known.after is None:
        raise ConfigError(
            f"{name} has no complete evaluation of its last library",
            hint=known.missing().get("after") or f"grpo-practice eval --run {quote(name)}",
        )
    return known.after.run
