from grpo_practice.sim import DEFAULT
from grpo_practice.sim.lore import sentence, text
from tests.sim.stages import library_of, merge, propose

HELP, SPEED = DEFAULT.key("posts", "help"), DEFAULT.key("speed", "help")
HARM, OTHER = DEFAULT.key("posts", "harm"), DEFAULT.key("posts", "harm", 1)
ADD = {"op": "ADD", "text": text(DEFAULT, HELP)}


def test_a_new_lesson_is_added_in_the_words_of_an_experience() -> None:
    assert propose([sentence(DEFAULT, HELP)]) == [ADD]
    assert ADD["text"].startswith("Both ends count: When things stand")
    assert ADD["text"].endswith(f"(#{HELP})")


def test_a_lesson_the_library_holds_changes_nothing() -> None:
    assert propose([sentence(DEFAULT, HELP)], library_of(SPEED, HELP)) == [{"op": "NONE"}]


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


def test_an_addition_the_library_holds_is_dropped() -> None:
    assert merge([ADD], library_of(HELP)) == []


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
