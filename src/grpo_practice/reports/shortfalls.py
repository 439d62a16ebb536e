"""Lessons that a practice run lost because its teacher failed or its proposals were refused."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, Literal

from grpo_practice.store.distillation import HARMLESS, added
from grpo_practice.store.distillation import Distillation as Distillation
from grpo_practice.store.records import StepRow as StepRow
from grpo_practice.text import count
from grpo_practice.types import QUARANTINE, QuarantineRule, RefusedRule, TeacherFailure

MANY = 5
"""A warning is due when more than one in so many came to nothing."""
PRACTISE = "grpo-practice practice"

Reason = TeacherFailure | RefusedRule | QuarantineRule

_TEACHER = "practice.teacher_model"
_FAILED: Mapping[str, tuple[str, str]] = {
    "unreadable": (
        "the reply was not in the form asked for",
        f"the model may be too weak to teach: choose another ({_TEACHER}), or correct"
        " practice.prompts_dir",
    ),
    "empty": (
        "the reply was empty",
        f"choose another model ({_TEACHER}), or raise its max_tokens where it thinks first",
    ),
    "cut": (
        "the token limit cut the reply",
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
        f"lower practice.teacher_context, or choose a model that takes more ({_TEACHER})",
    ),
    "provider": ("the endpoint gave no usable answer", "see what `grpo-practice doctor` finds"),
}
"""`TeacherFailure` → what it means, and what to change."""
_QUARANTINED = "look at the texts, and at what is wrong with each"
ONE_SITE = (
    "name the site in practice.trusted_sites if you trust it, or let a person decide with"
    " practice.approve: true"
)
"""Advice if only one web site supports a lesson."""
UNFIT = f"choose another model ({_TEACHER}), or correct practice.prompts_dir"
"""Advice where the teacher does not keep to what is asked for."""
_REFUSED: Mapping[str, str] = {
    "unknown_id": UNFIT,
    "second_operation": UNFIT,
    "no_text": UNFIT,
    "too_long": "ask for shorter texts in practice.learning_objective or practice.prompts_dir",
    "beyond_limit": "raise practice.num_experiences_per_query",
    "library_full": "export the library as it is, or begin anew with another exp_id",
}
"""`RefusedRule`, but for the harmless ones → what to change. A limit is not the model's fault."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Comparisons, or proposals, of which too many came to nothing."""

    of: Literal["comparisons", "proposals"]
    lost: int
    all: int
    reason: Reason
    """The commonest."""
    alone: bool
    """Whether there was no other reason."""
    step: int
    """The first one concerned."""
    total: bool
    """Whether nothing was learnt from any, so that the run is a failure."""
    again: bool
    """Whether the run was restarted at that step, which only `--again` repeats."""

    @property
    def sentence(self) -> str:
        """Number that came to nothing, and the reason."""
        noun = self.of.removesuffix("s")
        share = f"{self.lost} of {count(self.all, noun)}"
        if self.lost == self.all:
            share = f"all {count(self.all, noun)}" if self.all > 1 else f"the only {noun}"
        mostly = "" if self.alone else "mostly "
        if self.of == "comparisons":
            return f"{share} failed, {mostly}because {_FAILED[self.reason][0]}"
        how = "quarantined" if self.reason in QUARANTINE else "refused"
        return f"{share} came to nothing, {mostly}{how} by the rule {spoken(self.reason)!r}"

    @property
    def advice(self) -> str:
        """Hint at a setting to change, or at something to look at."""
        return advice(self.reason)

    def next_command(self, run: str, practise: str = PRACTISE) -> str:
        """Return what to type. `practise` is a command that goes on with the run."""
        if self.reason in QUARANTINE:
            return f"grpo-practice experiences list --quarantined --run {quote(run)}"
        return f"{practise} {restart_option(self.step, again=self.again)}"

    def document(self, run: str, practise: str = PRACTISE) -> dict[str, Any]:
        """Return it as part of a document."""
        words = {"sentence": self.sentence, "advice": self.advice}
        return asdict(self) | words | {"next": self.next_command(run, practise)}


def practise_command(last: str) -> str:
    """Return the command that goes on with a practice run: its last one, if that practised."""
    return last if last.startswith(PRACTISE) else PRACTISE


def is_restarted(step: int, rows: Sequence[StepRow]) -> bool:
    """Return whether the run, of these steps, was restarted at this one, which is not 0."""
    return 0 < step == next(r.plan.step for r in rows if r.branch_id == rows[-1].branch_id)


def restart_option(step: int, *, again: bool) -> str:
    """Return the option that plays the steps from this one on afresh; see `is_restarted`."""
    return f"--restart-step {step}{' --again' if again else ''}"


def advice(reason: str) -> str:
    """Return what to change, or to look at, for the commonest reason."""
    if reason in _FAILED:
        return _FAILED[reason][1]
    if reason == "one_site":
        return ONE_SITE
    return _REFUSED.get(reason, _QUARANTINED)


def counted_steps(rows: Sequence[StepRow]) -> dict[int, Distillation]:
    """Return the counts of the closed steps of a practice run, by step."""
    found = {row.plan.step: Distillation.of(row.stats) for row in rows if row.closed}
    return {step: counts for step, counts in found.items() if counts is not None}


def shortfalls(rows: Sequence[StepRow]) -> list[Shortfall]:
    """Return what is worth a warning in the steps of a run, comparisons first."""
    steps = counted_steps(rows)
    sums = Distillation.total(list(steps.values()))
    rules: list[Mapping[Any, int]] = [sums.refused, sums.quarantined]
    return [
        *_shortfall(
            "comparisons",
            {step: sum(counts.failed.values()) for step, counts in steps.items()},
            sums.informative,
            sums.failed,
            may_be_total=True,
            rows=rows,
        ),
        *_shortfall(
            "proposals",
            {step: counts.lost for step, counts in steps.items()},
            sums.proposals,
            {r: n for r, n in added(rules).items() if r not in HARMLESS},
            may_be_total=not sums.confirmed and not sums.removed,
            rows=rows,
        ),
    ]


def _shortfall(
    of: Literal["comparisons", "proposals"],
    lost: Mapping[int, int],
    all_: int,
    reasons: Mapping[Any, int],
    *,
    may_be_total: bool,
    rows: Sequence[StepRow],
) -> list[Shortfall]:
    """Return a shortfall, if there is one. `lost`: step → how many; `reasons`: commonest first."""
    n = sum(lost.values())
    if n * MANY <= all_:
        return []
    first = min(step for step, some in lost.items() if some)
    total = may_be_total and n == all_
    again = is_restarted(first, rows)
    return [Shortfall(of, n, all_, next(iter(reasons)), len(reasons) == 1, first, total, again)]


def spoken(kind: str) -> str:
    """Return a kind or rule in words: `gives answer away`."""
    return kind.replace("_", " ")
