from random import Random

import pytest

from grpo_practice.sim.questions import TOPICS, find, questions, solve

MANY = questions(1_000, seed=5)


def test_every_question_is_read_back_with_its_answer_and_topic() -> None:
    for sample in MANY:
        question = find(sample.question)
        assert question is not None
        assert (question.text, question.answer) == (sample.question, sample.answer)
        assert question.topic == sample.source


def test_questions_are_distinct_and_topics_balanced() -> None:
    assert len({s.question for s in MANY}) == len(MANY)
    assert [s.source for s in MANY[:10]] == list(TOPICS)


def test_a_longer_list_begins_with_the_shorter_one() -> None:
    assert questions(30, seed=5) == MANY[:30]
    assert questions(30, seed=6) != MANY[:30]


def test_a_slip_is_never_the_right_answer() -> None:
    for sample in MANY:
        question = find(sample.question)
        assert question is not None
        assert question.answer not in question.slips


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "A lamp that cost 164 coins last year costs 205 coins now. "
            "By how many percent has its price risen?",
            25,
        ),
        (
            "Posts stand every 14 metres along a straight path of 196 metres, one at each end "
            "included. How many posts are there?",
            15,
        ),
        (
            "A farm has hens and goats, together 31 heads and 108 legs. How many goats are there?",
            23,
        ),
        (
            "Ines rides 75 km out at 36 km/h and the same way back at 60 km/h. "
            "What is the average speed of the whole ride in km/h?",
            45,
        ),
        (
            "5 bakers bake 765 rolls in 9 hours. "
            "At this pace, how many rolls do 10 bakers bake in 6 hours?",
            1020,
        ),
    ],
)
def test_answers_are_those_a_person_works_out(text: str, answer: int) -> None:
    assert solve(text) == answer


def test_a_question_is_found_amid_other_text_and_over_line_breaks() -> None:
    sample = MANY[2]
    inside = f"Please answer.\n\n{sample.question.replace(' ', chr(10), 3)}\n\nUse a box."
    assert solve(inside) == sample.answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What is 2 + 2?",
        "A lamp that cost 0 coins last year costs 205 coins now. "
        "By how many percent has its price risen?",
        "A lamp that cost 7 coins last year costs 9 coins now. "
        "By how many percent has its price risen?",
    ],
    ids=["empty", "foreign", "no base", "not whole"],
)
def test_a_text_without_a_whole_answer_has_none(text: str) -> None:
    assert solve(text) is None


@pytest.mark.long
def test_running_out_of_questions_is_said() -> None:
    with pytest.raises(ValueError, match="different questions"):
        questions(100_000, seed=0)


def test_every_topic_draws_numbers_that_fit_its_wordings() -> None:
    for topic in TOPICS.values():
        numbers = topic.draw(Random(1))
        for wording in topic.wordings:
            wording.format(name="Ada", things="tiles", **numbers)
            assert all(f"{{{name}}}" in wording for name in numbers)
