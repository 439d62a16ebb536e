"""Questions whose answers are words of a short list."""

from collections import Counter

import pytest

from grpo_practice.core.types import Sample
from grpo_practice.sim import World
from grpo_practice.sim.experience_texts import about, keys_in, text
from grpo_practice.sim.questions import LABEL_TOPICS, LABELS, TOPICS, find, questions, solve
from grpo_practice.sim.world import Teaching, topic_of
from grpo_practice.verify.math import at_once
from tests.sim.agents import play as play_with_tools
from tests.sim.agents import run_code
from tests.sim.rehearsal import Rehearsal
from tests.sim.stages import EMPTY, ask, play, reward

WORLD = World(task="labels", teacher=Teaching(top=1.0, miss=0.0))
MANY = questions(1_000, 3, "labels")


def test_few_labels_are_shared_by_many_questions() -> None:
    golds = Counter(sample.answer for sample in MANY)
    assert 3 <= len(golds) <= 6
    assert min(golds.values()) >= 100
    assert [s.source for s in MANY[:10]] == list(LABEL_TOPICS)
    assert len({s.question for s in MANY}) == len(MANY)
    assert not set(TOPICS) & set(LABEL_TOPICS)


def test_every_question_is_read_back_with_its_label_and_slips() -> None:
    for sample in MANY:
        question = find(sample.question)
        assert question is not None
        assert (question.text, question.topic) == (sample.question, sample.source)
        assert question.answer == sample.answer == solve(sample.question)
        assert question.answer not in question.slips
        assert all(str(label) in sample.question for label in (question.answer, *question.slips))


def test_right_advice_names_the_label() -> None:
    for name, lore in LABELS.items():
        key = WORLD.key(name, "help")
        said = text(WORLD, key)
        assert f"`{lore.labels[0]}`" in said
        assert (keys_in(said), topic_of(key), about(said)) == ([key], name, name)
        wrong = zip(lore.labels[1:], lore.wrong, strict=True)
        assert all(f"`{slip}`" in advice.do for slip, advice in wrong)


@pytest.mark.parametrize("sample", MANY[:10], ids=lambda s: s.source)
def test_the_student_answers_with_a_label_that_is_scored(sample: Sample) -> None:
    said = Counter[str]()
    for seed in range(60):
        reply = play(sample.question, EMPTY, seed, WORLD)
        scored = at_once([str(sample.answer)], reply)
        right = reward(sample.question, reply)
        assert (getattr(scored, "reward", 0.0) == 1.0) is bool(right)
        said[reply.rpartition("{")[2].rstrip("}")] += 1
    found = find(sample.question)
    assert found is not None
    assert set(said) <= {found.answer, *found.slips}


def test_with_a_tool_it_stays_with_its_label() -> None:
    for seed, sample in enumerate(MANY[:40]):
        tools = {"execute_python_code": run_code}
        played = play_with_tools(sample.question, tools, seed=seed, world=WORLD, system="Do it.")
        messages = [
            {"role": "system", "content": "Do it."},
            {"role": "user", "content": sample.question},
        ]
        plain = ask(messages, seed, WORLD)
        assert played.answer.rpartition("{")[2] == plain.rpartition("{")[2]


def test_practice_learns_labels() -> None:
    done = Rehearsal(WORLD).practise()
    assert done.kinds["help"] >= 7
    assert done.gain() > 0.1
