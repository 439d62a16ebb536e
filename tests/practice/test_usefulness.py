"""Whether the comparisons of a step were of any use."""

from dataclasses import replace

import pytest

from grpo_practice.core.types import Distilled, Lesson, Operation
from grpo_practice.practice.usefulness import LEAST, are_useless

FAILED = Distilled(0, failed="ReplyError: no list", failed_kind="unreadable")
ADDED = Operation("ADD", text="Units: convert first.")
QUARANTINED = replace(ADDED, refused="it contains a web address", rule="web_address")
CONFIRMED = Operation("NONE", "E1", finding="confirmed")
PROPOSED = Distilled(0, (Lesson("Convert."),), (ADDED,))
SET_ASIDE = Distilled(0, (Lesson("Convert."),), (QUARANTINED,))


@pytest.mark.parametrize(
    ("last", "useless"),
    [
        (FAILED, True),
        (SET_ASIDE, True),
        (PROPOSED, False),
        (Distilled(0), False),  # it found no lesson
        (replace(SET_ASIDE, operations=(QUARANTINED, ADDED)), False),
        (replace(SET_ASIDE, operations=(QUARANTINED, CONFIRMED)), False),
        (replace(FAILED, operations=(CONFIRMED,)), False),
        (
            replace(PROPOSED, operations=(replace(ADDED, refused="full", rule="library_full"),)),
            False,
        ),
    ],
)
def test_one_comparison_of_use_is_enough(last: Distilled, useless: bool) -> None:
    assert are_useless([FAILED, SET_ASIDE, last]) == useless


def test_a_merge_whose_texts_are_all_quarantined_leaves_nothing_of_proposals() -> None:
    distilled = [PROPOSED] * LEAST
    assert are_useless(distilled, [QUARANTINED])
    assert not are_useless(distilled, [QUARANTINED, ADDED])
    assert not are_useless(distilled, [])
    confirmed = replace(PROPOSED, operations=(ADDED, CONFIRMED))
    assert not are_useless([*distilled, confirmed], [QUARANTINED])


def test_fewer_comparisons_may_fail_by_chance() -> None:
    assert not are_useless([FAILED] * (LEAST - 1))
    assert not are_useless([])
