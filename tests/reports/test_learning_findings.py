"""When too much of a run came to nothing, and what is then said."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from grpo_practice.core.findings import Finding, noteworthy
from grpo_practice.core.types import PlannedStep, QuarantineRule, RefusedRule, TeacherFailure
from grpo_practice.reports.learning_findings import shortfalls
from grpo_practice.store.distillation import DISTILLATION, HARMLESS, Distillation
from grpo_practice.store.records import StepRow

NONE = Distillation()


def step(n: int, counts: Distillation | None, status: str = "closed") -> StepRow:
    stats: dict[str, Any] = {} if counts is None else {DISTILLATION: counts.document()}
    return StepRow(1, PlannedStep(n, 0, n, ((1, 5),)), status, None, None, None, stats)


def found(*steps: Distillation | None) -> list[Finding]:
    return shortfalls("math", [step(n, counts) for n, counts in enumerate(steps)])


@pytest.mark.parametrize(
    ("lost", "of", "warned", "total"),
    [
        (0, 0, False, False),
        (0, 10, False, False),
        (2, 10, False, False),
        (3, 10, True, False),
        (9, 10, True, False),
        (10, 10, True, True),
        (1, 1, True, True),
    ],
)
def test_more_than_a_fifth_is_a_warning_and_all_a_failure(
    lost: int, of: int, warned: bool, total: bool
) -> None:
    failed = Distillation(informative=of, failed={"cut": lost} if lost else {})
    quarantined = Distillation(proposals=of, lost=lost, quarantined={"markup": lost})
    for what, counts in (("comparisons", failed), ("proposals", quarantined)):
        shorts = found(NONE, counts)
        severity = "problem" if total else "warning"
        assert [(s.about, s.n, s.of, s.severity) for s in shorts] == (
            [(what, lost, of, severity)] if warned else []
        )
        assert all(s.sentence.startswith("nothing was learnt: ") is total for s in shorts)
        if shorts and what == "comparisons":
            assert shorts[0].command == "grpo-practice practice --restart-step 1"


def test_it_is_counted_over_all_steps_and_the_commonest_reason_is_named() -> None:
    (short,) = found(
        Distillation(informative=9, failed={"cut": 1}),
        Distillation(informative=1, failed={"empty": 1}),
        Distillation(informative=2, failed={"empty": 1}),
    )
    assert (short.n, short.of, short.severity) == (3, 12, "warning")
    assert short.sentence == "3 of 12 comparisons failed, mostly because the reply was empty"
    assert short.command == "grpo-practice practice --restart-step 0"


def test_a_harmless_refusal_is_never_the_reason() -> None:
    refused = Distillation(proposals=4, lost=1, refused={"duplicate": 9, "too_long": 1})
    (short,) = found(refused)
    assert short.sentence.endswith("refused by the rule 'too long'")
    assert "mostly" not in short.sentence
    assert found(Distillation(proposals=4, refused={"duplicate": 4}, outvoted=3)) == []


@pytest.mark.parametrize("learnt", [{"confirmed": 1}, {"removed": 1}])
def test_a_run_that_confirmed_or_removed_something_learnt_from_it(learnt: dict[str, int]) -> None:
    counts = Distillation(proposals=2, lost=2, refused={"too_long": 2})
    assert [s.severity for s in found(counts)] == ["problem"]
    assert [s.severity for s in found(replace(counts, **learnt))] == ["warning"]  # type: ignore[arg-type]


def test_a_problem_comes_before_a_warning() -> None:
    failed = Distillation(informative=4, failed={"cut": 1})
    counts = replace(failed, proposals=2, lost=2, refused={"too_long": 2})
    assert [f.about for f in noteworthy(found(counts))] == ["proposals", "comparisons"]


def test_an_open_step_does_not_count() -> None:
    counts = Distillation(informative=2, failed={"cut": 2})
    rows = [step(0, counts), step(1, None, "running")]
    assert [s.severity for s in shortfalls("math", rows)] == ["problem"]


def test_one_of_one_is_the_only_one() -> None:
    (short,) = found(Distillation(informative=1, failed={"refused": 1}))
    assert (
        short.sentence
        == "nothing was learnt: the only comparison failed, because the teacher refused"
    )


@pytest.mark.parametrize("kind", get_args(TeacherFailure))
def test_each_kind_of_failure_has_a_sentence_and_an_advice(kind: TeacherFailure) -> None:
    (short,) = found(Distillation(informative=3, failed={kind: 3}))
    assert short.sentence.startswith("nothing was learnt: all 3 comparisons failed, because ")
    assert short.hint
    assert (short.command or "").endswith("--restart-step 0")


RULES = [*get_args(QuarantineRule), *sorted(set(get_args(RefusedRule)) - HARMLESS)]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_but_the_harmless_ones_has_a_command_that_helps(rule: str) -> None:
    where = "quarantined" if rule in get_args(QuarantineRule) else "refused"
    (short,) = found(replace(Distillation(proposals=3, lost=3), **{where: {rule: 3}}))  # type: ignore[arg-type]
    looks = "experiences list --quarantined --run math" in (short.command or "")
    assert looks is (where == "quarantined")
    assert rule.replace("_", " ") in short.sentence
    of_a_limit = rule in ("too_long", "beyond_limit", "library_full")
    assert not (of_a_limit and "model" in (short.hint or ""))
