from collections import Counter
from typing import Any

import pytest

from grpo_practice.core.calls import Reply
from grpo_practice.core.prompts.system import experience_lines
from grpo_practice.core.types import Experience, Library, Operation
from grpo_practice.practice.replies import read_operations
from grpo_practice.sim import DEFAULT, World, answer
from grpo_practice.sim.experience_texts import advice, text, told
from grpo_practice.sim.world import Teaching
from tests.fakes import FENCES
from tests.sim.stages import GOALS, PROMPTS, ask, ending, library_of, merge, propose

HELP, SPEED = DEFAULT.key("posts", "help"), DEFAULT.key("speed", "help")
HARM, OTHER = DEFAULT.key("posts", "harm"), DEFAULT.key("posts", "harm", 1)
ADD = {"op": "ADD", "text": text(DEFAULT, HELP)}


def sentence(world: World, key: str, *, instead_of: str | None = None) -> str:
    """The lesson behind an experience of the world."""
    return told(key, advice(world, key).do, instead_of=instead_of)


def test_a_new_lesson_is_added_in_the_words_of_an_experience() -> None:
    assert propose([sentence(DEFAULT, HELP)]) == [ADD]
    assert ADD["text"].startswith("Both ends count: When things stand")
    assert ADD["text"].endswith(f"(#{HELP})")


def test_a_lesson_the_library_holds_confirms_what_says_it() -> None:
    held = [{"op": "NONE", "id": "E2"}]
    assert propose([sentence(DEFAULT, HELP)], library_of(SPEED, HELP)) == held
    told = f"{sentence(DEFAULT, OTHER)} (about E2: confirmed)"
    assert propose([told], library_of(SPEED, HELP)) == held, "the lesson says which"


def test_a_lesson_without_a_marker_changes_nothing() -> None:
    assert propose(["When in doubt, think."]) == [{"op": "NONE"}]


def test_a_misleading_experience_gives_way_to_the_remedy_or_goes() -> None:
    library = library_of(SPEED, HARM)
    remedy = sentence(DEFAULT, HELP, instead_of="E2")
    removal = "When posts are counted, do not follow E2, which misled."
    assert propose([remedy, removal], library) == [
        {"op": "UPDATE", "id": "E2", "text": text(DEFAULT, HELP)},
        {"op": "DELETE", "id": "E2"},
    ]
    told = f"{remedy} (about E2: misled)"
    assert propose([told], library) == propose([remedy], library), "which is no part of the text"


def test_a_misleading_experience_goes_when_its_remedy_is_there_already() -> None:
    library = library_of(HELP, HARM)
    lesson = sentence(DEFAULT, HELP, instead_of="E2")
    assert propose([lesson], library) == [{"op": "DELETE", "id": "E2"}]


def test_an_unknown_experience_is_not_touched() -> None:
    assert propose(["Do not follow E9, which misled."], library_of(HARM)) == [{"op": "NONE"}]


def test_equal_additions_become_one_that_stands_for_all() -> None:
    speed = {"op": "ADD", "text": text(DEFAULT, SPEED)}
    assert merge([ADD, speed, ADD]) == [
        {**ADD, "from": ["P1", "P3"]},
        {**speed, "from": ["P2"]},
    ]


def test_an_addition_the_library_holds_confirms_what_says_it() -> None:
    speed = {"op": "ADD", "text": text(DEFAULT, SPEED)}
    assert merge([ADD, speed, ADD], library_of(HARM, HELP)) == [
        {**speed, "from": ["P2"]},
        {"op": "NONE", "id": "E2", "from": ["P1", "P3"]},
    ]


def test_what_rewards_have_removed_is_not_added_again() -> None:
    speed = {"op": "ADD", "text": text(DEFAULT, SPEED)}
    removed = (text(DEFAULT, OTHER), text(DEFAULT, HELP))
    assert merge([ADD, speed], disproved=removed) == [{**speed, "from": ["P2"]}]


def test_each_experience_gets_one_operation_and_an_update_beats_a_deletion() -> None:
    update = {"op": "UPDATE", "id": "E1", "text": text(DEFAULT, HELP)}
    delete = {"op": "DELETE", "id": "E1"}
    merged = merge([delete, update, delete], library_of(HARM))
    assert merged == [{**update, "from": ["P1", "P2", "P3"]}]


def test_two_updates_to_the_same_text_leave_it_once() -> None:
    updates = [{"op": "UPDATE", "id": id, "text": text(DEFAULT, HELP)} for id in ("E1", "E2")]
    assert merge([*updates, ADD], library_of(HARM, OTHER)) == [
        {**updates[0], "from": ["P1"]},
        {"op": "DELETE", "id": "E2", "from": ["P2"]},
    ]


def test_only_deletions_need_no_text() -> None:
    deletions = [{"op": "DELETE", "id": "E1"}, {"op": "DELETE", "id": "E1"}]
    assert merge(deletions, library_of(HARM)) == [
        {"op": "DELETE", "id": "E1", "from": ["P1", "P2"]}
    ]


def test_of_additions_that_contradict_each_other_the_one_asked_for_most_is_made() -> None:
    harm, speed = ({"op": "ADD", "text": text(DEFAULT, key)} for key in (HARM, SPEED))
    assert merge([harm, ADD, speed, ADD]) == [
        {**ADD, "from": ["P2", "P4"]},
        {**speed, "from": ["P3"]},
    ]
    assert merge([harm, ADD]) == [{**harm, "from": ["P1"]}], "the first of equals"


def test_of_updates_the_one_asked_for_most_is_made() -> None:
    help_, harm = (
        {"op": "UPDATE", "id": "E1", "text": text(DEFAULT, key)} for key in (HELP, OTHER)
    )
    merged = merge([harm, help_, help_], library_of(HARM))
    assert merged == [{**help_, "from": ["P1", "P2", "P3"]}]


def told_votes(
    votes: dict[str, bool], world: World = DEFAULT, seed: int = 0
) -> list[dict[str, Any]]:
    """What becomes of an update of E2, given which experiences stay."""
    update = {"id": "P1", "op": "UPDATE", "finding": None, "text": ADD["text"]}
    slots: dict[str, Any] = {
        **GOALS,
        "experiences": experience_lines(library_of(SPEED, HARM)),
        "proposals": [("E2", [update])],
        "votes": {
            label: {"supporting": "2", "opposing": "1", "change": None, "asked": "3", "stays": on}
            for label, on in votes.items()
        },
        "size": None,
        "disproved": (),
    }
    operations = ending(ask(PROMPTS["merge"].render(FENCES, **slots), seed, world))["operations"]
    assert isinstance(operations, list)
    return operations


@pytest.mark.parametrize(
    ("votes", "changed"),
    [
        ({"E2": True}, False),
        ({"E2": False}, True),
        ({"E1": True}, True),
        ({}, True),
    ],
)
def test_an_experience_that_stays_is_not_changed(votes: dict[str, bool], changed: bool) -> None:
    assert bool(told_votes(votes)) is changed


def test_a_confused_librarian_goes_against_the_evidence_as_often_as_it_is_confused() -> None:
    world = World(teacher=Teaching(noise=0.3))
    shares = [
        sum(bool(told_votes(votes, world, seed)) for seed in range(300)) / 300
        for votes in ({"E2": True}, {"E2": False})
    ]
    assert abs(shares[0] - 0.3) < 0.08
    assert abs(shares[1] - 0.7) < 0.08


def test_an_experience_of_nobody_of_this_world_is_not_taken_for_the_lesson() -> None:
    """It has no mark of its own, and the lesson that follows it has one."""
    foreign = Library((Experience(1, "Units: when units differ, convert them first."),), 2)
    assert propose([sentence(DEFAULT, HELP)], foreign) == [ADD]


def inexact(world: World, seed: int) -> tuple[Operation, ...]:
    """A merge of one update, in the mixed formats of models."""
    update = {"id": "P1", "op": "UPDATE", "finding": None, "text": text(DEFAULT, HELP)}
    library = library_of(SPEED, HARM)
    slots: dict[str, Any] = {
        **GOALS,
        "experiences": experience_lines(library),
        "proposals": [("E2", [update])],
        "votes": {},
        "size": None,
        "disproved": (),
    }
    body = {"messages": PROMPTS["merge"].render(FENCES, **slots), "seed": seed}
    reply = Reply(answer(body, world)["choices"][0]["message"])
    changed, *rest = read_operations(reply, library, limit=9, proposals=1)
    assert (changed.op, changed.target, changed.text) == ("UPDATE", "E2", update["text"])
    return changed, *rest


def test_some_merges_name_no_proposals_and_some_what_stays() -> None:
    """As models do, so that a run of this world sees what becomes of such a merge."""
    seen = Counter[tuple[bool, bool]]()
    for seed in range(300):
        changed, *rest = inexact(DEFAULT, seed)
        assert [(op.op, op.target, op.from_ops) for op in rest] in ([], [("NONE", "E1", ())])
        seen[bool(changed.from_ops), bool(rest)] += 1
    assert len(seen) == 4, "also both in one merge"
    assert 30 < sum(n for (named, _), n in seen.items() if not named) < 90
    assert 30 < sum(n for (_, none), n in seen.items() if none) < 90
