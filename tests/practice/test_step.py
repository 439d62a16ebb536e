"""What a step counts of its groups, proposals and replies, and how steps add up."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from grpo_practice.core.types import Distilled, Lesson, Operation
from grpo_practice.practice.step import distillation
from grpo_practice.store.distillation import DISTILLATION, Distillation

ADD = Operation("ADD", text="Units: convert them.")
LONG = replace(ADD, refused="too long", rule="too_long")
AGAIN = replace(ADD, refused="there already", rule="duplicate")
HOSTILE = replace(ADD, refused="it contains markup", rule="markup")
DOUBTED = Operation("DELETE", "E1", refused="outvoted", rule="outvoted")
HELD = Operation("NONE", "E1", finding="confirmed")


def taken(op: Operation, *sources: int) -> Operation:
    return replace(op, from_ops=sources)


def group(*operations: Operation, slot: int = 0) -> Distilled:
    return Distilled(slot, (Lesson("When a, do b."),), operations)


def test_each_group_and_each_operation_is_counted_once_by_what_became_of_it() -> None:
    groups = [
        group(ADD, LONG, HELD, Operation("NONE")),
        replace(group(HOSTILE, slot=1), shortened=2, cut_chars=900, unread=("EndpointError: x",)),
        Distilled(2, failed="ReplyError: it is empty", failed_kind="empty"),
        Distilled(3, (Lesson("l"),), failed="EndpointError: x", failed_kind="provider"),
        Distilled(4, failed="ReplyError: it is empty", failed_kind="empty"),
    ]
    merged = [taken(ADD, 0), DOUBTED]
    found = distillation(groups, merged, [Operation("DELETE", "E2")], 7)
    assert found == Distillation(
        informative=5,
        compared=3,
        failed={"empty": 2, "provider": 1},
        unsummarised=1,
        shortened=2,
        cut_chars=900,
        lessons=3,
        proposals=3,
        confirmed=1,
        refused={"too_long": 1},
        outvoted=1,
        quarantined={"markup": 1},
        lost=2,
        removed=1,
        experiences=7,
    )
    assert list(found.failed) == ["empty", "provider"]  # the commonest first


@pytest.mark.parametrize(
    ("proposed", "merged", "lost"),
    [
        pytest.param([ADD, ADD], [taken(ADD, 0, 1)], 0, id="taken"),
        pytest.param([ADD, ADD], [], 0, id="the merge leaves them out"),
        pytest.param([HOSTILE, LONG, ADD], [taken(ADD, 0)], 2, id="as proposed"),
        pytest.param([AGAIN, ADD], [taken(DOUBTED, 0)], 0, id="harmless"),
        pytest.param([ADD, ADD], [taken(HOSTILE, 0, 1)], 2, id="as merged"),
        pytest.param([ADD, ADD], [taken(HOSTILE, 0, 1), taken(ADD, 1)], 1, id="one is left"),
        pytest.param([LONG, ADD], [taken(HOSTILE, 0)], 2, id="numbered without the refused"),
        pytest.param([ADD, ADD], [HOSTILE], 2, id="all that is made is lost"),
        pytest.param([LONG, ADD], [taken(HOSTILE, 0)], 2, id="a refused one is not merged"),
        pytest.param([HELD, ADD], [taken(HOSTILE, 0)], 1, id="a confirmation is no proposal"),
        pytest.param(
            [ADD],
            [taken(HOSTILE, 0), taken(Operation("NONE", "E1"), 0)],
            1,
            id="a NONE makes nothing of it",
        ),
    ],
)
def test_a_proposal_is_lost_when_a_refusal_leaves_nothing_of_it(
    proposed: Sequence[Operation], merged: Sequence[Operation], lost: int
) -> None:
    groups = [group(op, slot=slot) for slot, op in enumerate(proposed)]
    assert distillation(groups, merged, [], 0).lost == lost


def test_the_counts_come_back_from_the_stats_of_a_step() -> None:
    counts = distillation([group(LONG, HOSTILE)], [], [], 3)
    stored = json.loads(json.dumps({DISTILLATION: counts.document()}))
    assert Distillation.of(stored) == counts
    assert Distillation.of({"informative": 3}) is None
    assert Distillation.of(None) is None
    newer = {DISTILLATION: {"lessons": 2, "what_a_newer_version_counts": 1}}
    assert Distillation.of(newer) == Distillation(lessons=2)


def test_steps_add_up_but_for_the_size_of_the_library() -> None:
    one = Distillation(lessons=1, lost=1, experiences=1)
    one = replace(one, failed={"cut": 1}, refused={"no_text": 1}, quarantined={"markup": 2})
    two = replace(one, failed={"empty": 3}, experiences=9)
    total = Distillation.total([one, two])
    assert total.failed == {"empty": 3, "cut": 1}
    assert list(total.failed) == ["empty", "cut"]
    assert (total.refused, total.quarantined) == ({"no_text": 2}, {"markup": 4})
    assert (total.lessons, total.lost, total.experiences) == (2, 2, 9)
    assert Distillation.total([]) == Distillation()
