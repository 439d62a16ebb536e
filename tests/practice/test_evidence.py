"""What is outvoted does not pass, whether the merge model obeys or not."""

from dataclasses import replace

import pytest

from grpo_practice.core.types import Experience, LessonFinding, Library, Operation, OpKind
from grpo_practice.practice.evidence import (
    REWARD_VARIANCE,
    SHARED_VARIANCE,
    VOTED,
    Change,
    Evidence,
    evidence_on,
    evidence_text,
)
from grpo_practice.practice.merge import (
    MOST_DISPROVED,
    Proposal,
    apply,
    fitting,
    merge,
    pruned,
    without_outvoted,
)
from grpo_practice.practice.replies import LIBRARY_SIZE
from grpo_practice.practice.teacher import GroupKey
from grpo_practice.store.records import Part, Past, Play
from tests.practice.test_distil import Said, teacher

LIBRARY = Library((Experience(1, "Units: name them."), Experience(2, "Sums: add.")), 3, id=7)
FOR = Operation("NONE", "E1", finding="confirmed")
AGAINST = Operation("UPDATE", "E1", "Units: leave them out.", finding="misled")
GONE = Operation("DELETE", "E1", finding="misled")
CLEARER = Operation("UPDATE", "E1", "Units: name each.", finding="unclear")


def play(sample: int, library: int | None, reward: float, scored: int, mean: float) -> Play:
    return Play(sample, library, Part(frozenset(), reward, scored), mean)


def on(past: Past, *cast: tuple[int, Operation], plays: tuple[Play, ...] = ()) -> Evidence:
    return evidence_on(LIBRARY, past, cast, plays)["E1"]


@pytest.mark.parametrize(
    ("op", "finding", "vote"),
    [
        ("NONE", "confirmed", 1),
        ("NONE", None, 1),
        ("ADD", None, 1),
        ("UPDATE", "unclear", 1),
        ("UPDATE", "too_narrow", 1),
        ("UPDATE", "misled", -1),
        ("UPDATE", None, -1),
        ("DELETE", "misled", -1),
        ("DELETE", None, -1),
        ("DELETE", "unclear", -1),
        ("UPDATE", "confirmed", 1),
    ],
)
def test_what_a_proposal_says_of_its_target(
    op: OpKind, finding: LessonFinding | None, vote: int
) -> None:
    assert Operation(op, finding=finding).vote == vote


def test_each_question_has_one_vote_however_often_it_is_asked() -> None:
    past = Past({"E1": {10: 3, 11: -1, 12: 1}})
    found = on(past, (11, AGAINST), (12, GONE), (13, FOR))
    assert dict(found.votes) == {10: 3, 11: -2, 12: 0, 13: 1}
    assert (found.supporting, found.opposing) == (2, 1)
    assert 0 < found.support < on(Past({"E1": {10: 1}})).support


def test_a_family_of_questions_has_one_vote() -> None:
    family = dict.fromkeys(range(10, 30), "f")
    twenty, one = dict.fromkeys(range(10, 30), 1), {10: 1}
    assert Evidence(twenty, families=family).support == Evidence(one).support
    assert Evidence(twenty).support > Evidence(one).support
    outvoted = Evidence({**twenty, 30: -1, 31: -1}, families=family)
    assert (outvoted.supporting, outvoted.opposing, outvoted.stays) == (20, 2, False)
    mixed = Evidence({10: 1, 11: -1, 12: -1}, families=family)
    assert mixed.support < 0
    assert mixed.stays, "one family alone does not remove an experience"
    assert on(Past({"E1": one}, families=family)).families == family


def test_a_vote_on_something_that_is_not_in_the_library_is_no_vote() -> None:
    assert on(Past(), (10, Operation("ADD", text="A: a."))).votes == {}
    assert evidence_on(LIBRARY, Past(), [(10, Operation("NONE", "E9"))]).keys() == {"E1", "E2"}


def test_a_question_that_says_it_often_in_one_step_says_it_once() -> None:
    assert on(Past(), (10, FOR), (10, FOR), (11, FOR), (11, AGAINST)).votes == {10: 1, 11: 0}


def test_a_tie_is_not_decided_by_how_numbers_add_up() -> None:
    tie = Evidence({10: 1, 11: -1}, {12: Change(-0.1, 1), 13: Change(-0.2, 1), 14: Change(0.3, 1)})
    assert tie.support != 0
    assert tie.stays


def test_a_reward_that_changed_with_the_experience_counts() -> None:
    """Before: 2 of 4 attempts, and one more at the step's mean of .5. With it: 4 of 4, then 3."""
    past = Past(
        votes={"E1": {10: 1}},
        plays=[play(10, 3, 0.5, 4, 0.5), play(10, 7, 1.0, 4, 0.6)],
        shown={7: {"E1", "E2"}},
    )
    found = on(past, plays=(play(10, 7, 0.75, 4, 0.6),))
    precision = 1 / (REWARD_VARIANCE * (1 / 8 + 1 / 5))
    assert found.changes == {10: pytest.approx((0.875 - 0.5, precision))}
    assert found.support > Evidence({10: 1}).support


def test_attempts_without_an_experience_on_trial_count_as_without_it() -> None:
    past = Past({"E1": {10: 1}}, shown={7: {"E1", "E2"}})
    shown, left_out = Part(frozenset({"E2"}), 1.0, 2), Part(frozenset({"E1"}), 0.5, 2)
    found = on(past, plays=(Play(10, 7, shown, 0.5), Play(10, 7, left_out, 0.5)))
    assert found.changes[10].size == pytest.approx(0.5)


def test_the_reward_of_a_question_of_the_same_subject_counts() -> None:
    plays = [play(11, 3, 0.5, 4, 0.5), play(11, 7, 1.0, 4, 0.5)]
    past = Past({"E1": {10: 1}}, plays, {7: {"E1"}})
    assert on(past).changes == {}
    assert on(replace(past, subjects=[{10, 11}, {12}])).changes.keys() == {11}
    said = evidence_on(
        LIBRARY, past, [(10, Operation("NONE", "E2")), (11, Operation("NONE", "E2"))]
    )
    assert said["E1"].changes.keys() == {11}, "both were about E2 in this step"


def test_an_experience_is_proven_or_disproved_only_by_rewards() -> None:
    many = dict.fromkeys(range(9), 1)
    assert not Evidence(many).proven
    assert not Evidence({10: -1, 11: -1}).disproved
    better, worse = Evidence(many, {1: Change(0.3, 9.0)}), Evidence(many, {1: Change(-0.3, 9.0)})
    assert (better.proven, better.disproved) == (True, False)
    assert (worse.proven, worse.disproved) == (False, False)
    worse = Evidence(many, {1: Change(-0.4, 9.0)})
    assert (worse.proven, worse.disproved, worse.stays) == (False, True, True)
    assert not Evidence({10: 1, 11: -1}, {10: Change(0.1, 9.0)}).proven


@pytest.mark.parametrize(
    ("plays", "change", "stays"),
    [(5, -0.1, True), (60, -0.1, False), (5, -0.4, False), (60, 0, True)],
)
def test_rewards_outweigh_votes_once_enough_attempts_are_played(
    plays: int, change: float, stays: bool
) -> None:
    """Five questions vote for it, and each is played `plays` times without and with it."""
    precision = plays / (2 * REWARD_VARIANCE)
    found = Evidence(dict.fromkeys(range(5), 1), dict.fromkeys(range(5), Change(change, precision)))
    assert found.stays == stays


def test_a_teacher_that_always_agrees_is_believed_only_so_far() -> None:
    few, many = (Evidence(dict.fromkeys(range(n), 1)).support for n in (10, 1_000))
    assert few < many < VOTED / SHARED_VARIANCE**0.5


def test_luck_is_taken_out_of_the_reward_before() -> None:
    """1 of 2 right where hardly any is: half of that was luck."""
    past = Past({"E1": {10: 1}}, [play(10, 3, 0.5, 2, 0.05)], {7: {"E1"}})
    assert on(past, plays=(play(10, 7, 0.35, 2, 0.05),)).changes[10].size == pytest.approx(0.0)


@pytest.mark.parametrize(
    "plays",
    [
        pytest.param([play(10, 3, 0.5, 4, 0.5)], id="never with it"),
        pytest.param([play(10, 7, 0.5, 4, 0.5)], id="never without it"),
        pytest.param([play(99, 3, 0.5, 4, 0.5), play(99, 7, 1.0, 4, 0.5)], id="no voter"),
        pytest.param([play(10, None, 0.5, 4, 0.5), play(10, 3, 0.9, 4, 0.5)], id="another text"),
    ],
)
def test_a_question_not_played_both_ways_says_nothing_by_its_reward(plays: list[Play]) -> None:
    assert on(Past({"E1": {10: 1}}, plays, {7: {"E1"}})).changes == {}


def test_a_run_that_learns_without_the_truth_looks_at_no_reward() -> None:
    past = Past({"E1": {10: 1}}, [play(10, 3, 0.5, 4, 0.5), play(10, 7, 1.0, 4, 0.5)], {7: {"E1"}})
    assert evidence_on(LIBRARY, past, rewards=False)["E1"].changes == {}
    assert evidence_on(LIBRARY, past)["E1"].changes != {}


STANDS, FALLS = Evidence({10: 1, 11: 1}), Evidence({10: 1, 11: -1, 12: -1})
EVIDENCE = {"E1": STANDS, "E2": STANDS}


def proposed(*ops: Operation) -> list[Proposal]:
    return [Proposal(op, slot, 20 + slot) for slot, op in enumerate(ops)]


def settled(merged: Operation, behind: list[Proposal], evidence: Evidence) -> Operation:
    (op,) = without_outvoted([merged], behind, {"E1": evidence, "E2": STANDS})
    return op


@pytest.mark.parametrize("change", [AGAINST, GONE])
def test_a_change_passes_only_where_more_speaks_against_the_experience(change: Operation) -> None:
    behind = proposed(change)
    merged = Operation(change.op, "E1", change.text, from_ops=(0,))
    assert settled(merged, behind, FALLS).refused is None
    refused = settled(merged, behind, STANDS)
    assert (refused.rule, refused.refused) == (
        "outvoted",
        "outvoted: 2 questions for it, 0 against it",
    )
    tie = Evidence({10: 1, 11: -1})
    assert settled(merged, behind, tie).rule == "outvoted"


def test_a_change_that_nobody_proposed_is_voted_on_as_well() -> None:
    assert settled(Operation("DELETE", "E1"), [], STANDS).rule == "outvoted"
    assert settled(Operation("UPDATE", "E1", "x"), [], FALLS).refused is None


def test_what_stands_may_be_said_more_clearly() -> None:
    merged = Operation("UPDATE", "E1", "Units: name each.", from_ops=(0,))
    assert settled(merged, proposed(CLEARER), STANDS).refused is None
    both = replace_from(merged, 2)
    assert settled(both, proposed(CLEARER, AGAINST), STANDS).rule == "outvoted"


def test_what_goes_is_not_kept_by_saying_it_more_clearly() -> None:
    merged = Operation("UPDATE", "E1", "Units: name each.", from_ops=(0,))
    refused = settled(merged, proposed(CLEARER), FALLS)
    assert refused.rule == "outvoted"
    assert [op.target for op in pruned(LIBRARY, [refused], {"E1": FALLS, "E2": STANDS})] == ["E1"]


@pytest.mark.parametrize("evidence", [STANDS, FALLS])
def test_a_merge_that_changes_nothing_decides_nothing(evidence: Evidence) -> None:
    none = Operation("NONE", "E1")
    assert settled(none, proposed(GONE), evidence) == none
    gone = pruned(LIBRARY, [none], {"E1": evidence, "E2": STANDS})
    assert [op.target for op in gone] == ([] if evidence.stays else ["E1"])


def test_what_is_outvoted_does_not_come_in_as_something_new() -> None:
    add = Operation("ADD", text=AGAINST.text, from_ops=(0,))
    assert settled(add, proposed(AGAINST), STANDS).rule == "outvoted"
    assert settled(add, proposed(AGAINST), FALLS).refused is None
    fresh = Operation("ADD", text="A: a.")
    assert settled(replace_from(add, 2), proposed(AGAINST, fresh), STANDS).refused is None
    assert settled(Operation("ADD", text="A: a."), [], STANDS).refused is None


def test_a_question_that_is_served_needs_a_second_one_for_something_new() -> None:
    """The proven experience raised the reward of questions 20 and 21."""
    proven = Evidence({20: 1, 21: 1}, {20: Change(0.5, 9.0), 21: Change(0.5, 9.0)})
    add = Operation("ADD", text="A: a.")
    one, two = replace_from(add, 1), replace_from(add, 2)
    refused = settled(one, proposed(add), proven)
    assert (refused.rule, refused.refused) == (
        "outvoted",
        "outvoted: E1 already serves its only question: 2 questions for it, 0 against it; with it,"
        " the mean reward of 2 questions rose by 0.50",
    )
    assert settled(two, proposed(add, add), proven).refused is None
    assert settled(one, proposed(add), Evidence({20: 1, 21: 1})).refused is None, "not yet proven"
    elsewhere = Evidence({21: 1}, {21: Change(0.5, 9.0)})
    assert settled(one, proposed(add), elsewhere).refused is None, "another question"


def test_what_removes_an_experience_says_whether_rewards_disproved_it() -> None:
    harms = Evidence({10: 1, 20: -1}, {10: Change(-0.5, 9.0)})
    turn = Operation("UPDATE", "E1", "x", from_ops=(0,))
    assert settled(turn, proposed(AGAINST), harms).disproved
    assert not settled(turn, proposed(AGAINST), FALLS).disproved, "only outvoted"
    (op,) = pruned(LIBRARY, [], {"E1": harms, "E2": STANDS})
    assert op.disproved


def test_new_experiences_do_not_turn_round_what_stands() -> None:
    """An update that stands for additions only: these questions vote for the change."""
    merged = Operation("UPDATE", "E1", "Units: drop them.", from_ops=(0, 1))
    add = Operation("ADD", text="Units: drop them.")
    assert settled(merged, proposed(add, add), STANDS).rule == "outvoted"
    three = proposed(add, add, add)
    assert settled(replace_from(merged, 3), three, STANDS).refused is None


def replace_from(op: Operation, n: int) -> Operation:
    return Operation(op.op, op.target, op.text, from_ops=tuple(range(n)))


def test_additions_and_refused_operations_are_left_as_they_are() -> None:
    ops = [Operation("ADD", text="A: a."), Operation("DELETE", "E9", refused="not in the library")]
    assert list(without_outvoted(ops, [], EVIDENCE)) == ops


def test_what_falls_goes_also_where_the_merge_leaves_it_alone() -> None:
    evidence = {"E1": FALLS, "E2": STANDS}
    (op,) = pruned(LIBRARY, [], evidence)
    assert (op.op, op.target, op.why) == ("DELETE", "E1", "1 question for it, 2 against it")
    assert [e.id for e in apply(LIBRARY, [op]).experiences] == ["E2"]
    assert pruned(LIBRARY, [Operation("UPDATE", "E1", "new")], evidence) == ()
    assert pruned(LIBRARY, [Operation("UPDATE", "E1", "new", refused="bad")], evidence) == (op,)
    assert pruned(LIBRARY, [], EVIDENCE) == ()


def test_the_evidence_is_told_with_what_the_rewards_did() -> None:
    found = Evidence({10: 1, 11: -1}, {10: Change(-0.5, 1), 11: Change(0.1, 1)})
    assert evidence_text(found) == (
        "1 question for it, 1 against it; with it, the mean reward of 2 questions fell by 0.20"
    )


async def test_what_cannot_pass_is_not_asked_about() -> None:
    assert (
        await merge(teacher(Said()), LIBRARY, proposed(AGAINST), EVIDENCE, GroupKey(1, 0, 0)) == ()
    )
    said = Said(merge='{"operations": []}')
    await merge(teacher(said), LIBRARY, proposed(AGAINST, CLEARER), EVIDENCE, GroupKey(1, 0, 0))
    await merge(teacher(said), LIBRARY, proposed(AGAINST), {"E1": FALLS}, GroupKey(1, 0, 0))
    stays, goes = said.prompts("merge")
    assert "\nIt stays.\n" in stays
    assert "\nIt goes.\n" in goes


async def test_an_operation_that_names_no_proposal_stands_for_those_that_say_the_same() -> None:
    """Votes for something else would keep what is wrong for ever."""
    said = Said(
        merge='{"operations": [{"op": "ADD", "text": "Sum: add it all up."},'
        ' {"op": "ADD", "text": "Rest: keep what remains."}, {"op": "NONE", "id": "E2"},'
        ' {"op": "UPDATE", "id": "E1", "text": "Units: name each."}]}'
    )
    total, gaps = (Operation("ADD", text=t) for t in ("Sum: add it all up.", "Gaps: count them."))
    rest = Operation("ADD", text="Rest: keep the part that remains.")
    behind = proposed(CLEARER, total, gaps, CLEARER, rest, total)
    replied = await merge(teacher(said), LIBRARY, behind, EVIDENCE, GroupKey(1, 0, 0))
    merged = without_outvoted(replied, behind, EVIDENCE)
    assert [(op.op, op.from_ops) for op in merged] == [
        ("ADD", (1, 5)),
        ("ADD", (4,)),
        ("NONE", ()),
        ("UPDATE", (0, 3)),
    ]
    assert [op.refused for op in merged] == [None] * 4


async def test_the_merge_is_told_of_the_newest_texts_that_rewards_disproved() -> None:
    said = Said(merge='{"operations": []}')
    add = proposed(Operation("ADD", text="A: a."))
    texts = [f"N{n}: n." for n in range(MOST_DISPROVED + 1)]
    await merge(teacher(said), LIBRARY, add, EVIDENCE, GroupKey(1, 0, 0), disproved=texts)
    await merge(teacher(said), LIBRARY, add, EVIDENCE, GroupKey(1, 0, 0))
    told_of, told_nothing = said.prompts("merge")
    assert "\nN1: n.\nN2: n.\n" in told_of
    assert "N0: n." not in told_of
    assert "Removed earlier" not in told_nothing


async def test_the_merge_is_told_of_what_goes_without_a_proposal() -> None:
    said = Said(merge='{"operations": []}')
    add = proposed(Operation("ADD", text="A: a."))
    await merge(teacher(said), LIBRARY, add, {"E1": FALLS, "E2": STANDS}, GroupKey(1, 0, 0))
    (told_of,) = said.prompts("merge")
    assert "### E1\n\nStands behind it: 1 question." in told_of
    assert "### E2" not in told_of


def test_a_place_counts_as_free_once_it_is() -> None:
    full = Library(tuple(Experience(n, f"N{n}: n.") for n in range(1, LIBRARY_SIZE + 1)), 999)
    add, delete = Operation("ADD", text="A: a."), Operation("DELETE", "E1")
    refused = Operation("DELETE", "E1", refused="outvoted", rule="outvoted")
    assert fitting(full, [refused, add], [])[1].rule == "library_full"
    assert fitting(full, [delete, add], []) == (delete, add)
    assert fitting(full, [add, add], [delete])[0].refused is None
    assert fitting(full, [add, add], [delete])[1].rule == "library_full"
    assert fitting(LIBRARY, [add, add], []) == (add, add)


def test_a_removal_is_not_carried_by_what_it_takes_along() -> None:
    """Additions about something else do not speak against an experience."""
    adds = proposed(*[Operation("ADD", text=f"A{n}: a.") for n in range(5)])
    delete = Operation("DELETE", "E1", from_ops=(0, 1, 2, 3, 4))
    assert settled(delete, adds, STANDS).rule == "outvoted"
    update = Operation("UPDATE", "E1", "x", from_ops=(0, 1, 2, 3, 4, 5))
    assert settled(update, [*adds, *proposed(AGAINST)], STANDS).rule == "outvoted"


def test_a_single_vote_against_needs_a_second_question() -> None:
    worse = {20: Change(-0.5, 4.0)}
    alone = Evidence({10: 1, 20: -1}, worse)
    assert alone.support < 0
    assert alone.stays
    assert not Evidence({10: 1, 20: -1, 21: -1}, worse).stays
    assert not Evidence({10: 1, 20: -1}, {**worse, 10: Change(-0.1, 4.0)}).stays
    assert not Evidence({20: 1}, {20: Change(-1.0, 9.0)}).stays  # no teacher said so
