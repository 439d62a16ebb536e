"""The ways in which a teacher fails: `Teaching.bias`, `adds`, `truism` and `wordings`."""

import re
from collections import Counter

import pytest

from grpo_practice.core.types import Library
from grpo_practice.sim import World
from grpo_practice.sim.experience_texts import about, advice, keys_in, named, text, told, truism
from grpo_practice.sim.questions import LABEL_TOPICS, TOPICS, questions
from grpo_practice.sim.teacher_prompts import key_of
from grpo_practice.sim.world import EffectKind, Rule, Teaching
from tests.sim.stages import EMPTY, Attempt, compare, library_of, merge, propose

SURE = Teaching(top=1.0, miss=0.0)
SAMPLES = {sample.source: sample.question for sample in questions(10, 0)}


def taught(
    topic: str, teacher: Teaching, library: Library = EMPTY, seed: int = 0, limit: int = 2
) -> list[dict[str, str]]:
    """The lessons of one group, whose wrong attempts followed E1 if there is one."""
    world, attempts = World(teacher=teacher), list[Attempt]()
    sides: tuple[EffectKind, ...] = ("help", "harm")
    for n, kind in enumerate(sides, 1):
        key = world.key(topic, kind)
        followed = " Followed E1." if kind == "harm" and library.experiences else ""
        said = f"Method {key}: {advice(world, key).do}.{followed}"
        attempts.append(Attempt(n, 2 - n, n, "none", said))
    return compare(SAMPLES[topic], attempts, library, seed=seed, limit=limit, world=world)


def test_a_biased_teacher_is_always_wrong_about_the_same_topics() -> None:
    biased = Teaching(top=1.0, miss=0.0, bias=0.3)
    world = World(teacher=biased)
    assert len(world.biased) == 3
    for topic in TOPICS:
        wanted = "harm" if topic in world.biased else "help"
        for seed in range(5):
            (lesson,) = taught(topic, biased, seed=seed)
            assert world.item(keys_in(lesson["lesson"])[0]).kind == wanted
    assert not World().biased
    assert World(seed=1, teacher=biased).biased != world.biased
    labels = World(task="labels", teacher=Teaching(bias=1.0)).biased
    assert labels == set(LABEL_TOPICS)


@pytest.mark.parametrize("held", ["help", "harm", "null"])
def test_a_teacher_that_only_adds_names_no_experience(held: EffectKind) -> None:
    """It repeats what is there, and adds to what it would replace."""
    adds = Teaching(noise=0.3, adds=1.0, forms="json")
    world = World(teacher=adds)
    library = library_of(world.key("posts", held), world.key("speed", held))
    for seed in range(20):
        lessons = taught("posts", adds, library, seed)
        assert all(lesson.keys() == {"lesson"} for lesson in lessons)
        words = [lesson["lesson"] for lesson in lessons]
        assert not re.search(r"\bE\d", "".join(words))
        assert all(keys_in(word) for word in words), "it does not only accuse"
        proposed = propose(words, library, seed, world)
        assert proposed == [{"op": "ADD", "text": named(word)} for word in words]


def test_some_lessons_name_an_experience_and_some_do_not() -> None:
    sometimes = Teaching(top=1.0, miss=0.0, adds=0.3)
    library = library_of(World().key("posts", "harm"))
    named = [
        "experience" in lesson
        for seed in range(120)
        for lesson in taught("posts", sometimes, library, seed)
    ]
    assert len(named) == 120
    assert named.count(False) / 120 == pytest.approx(0.3, abs=0.12)


def test_a_truism_comes_first_and_is_one_more_than_asked_for() -> None:
    vague = Teaching(top=1.0, miss=0.0, truism=1.0)
    firsts = Counter[str]()
    for topic in TOPICS:
        for seed in range(3):
            first, second = taught(topic, vague, seed=seed, limit=1)
            firsts[first["lesson"]] += 1
            assert [second] == taught(topic, SURE, seed=seed, limit=1)
    assert set(firsts) == {truism(0), truism(1)}, "the same sentences for all questions"
    half = Teaching(top=1.0, miss=0.0, truism=0.5)
    many = [len(taught("posts", half, seed=seed)) for seed in range(120)]
    assert many.count(2) / 120 == pytest.approx(0.5, abs=0.12)


def test_a_truism_names_no_situation_and_has_no_effect() -> None:
    held = library_of(World().key("percent", "help"))
    for said in (truism(0), truism(1)):
        (key,) = keys_in(said)
        assert about(named(said)) is about(said) is None
        assert named(said).partition(":")[0] in ("Calm reading", "Tidy work")
        for world in (World(), World(rule=Rule(p_help=0.5, p_null=0.0))):
            assert world.item(key).kind == "null"
        add = {"op": "ADD", "text": named(said)}
        assert propose([said, said]) == [add, add]
        assert merge([add, add], held) == [{**add, "from": ["P1", "P2"]}]


def test_a_lesson_is_worded_in_several_ways_that_are_recognised() -> None:
    four = Teaching(top=1.0, miss=0.0, wordings=4)
    world = World(teacher=four)
    for topic in ("percent", "rate"):
        key = world.key(topic, "help")
        for library in (EMPTY, library_of(world.key(topic, "harm"))):
            said = {taught(topic, four, library, seed)[0]["lesson"] for seed in range(25)}
            assert len(said) == 4
            for lesson in said:
                assert (about(lesson), key_of(lesson)) == (topic, key)
                assert named(lesson).startswith(f"{advice(world, key).name}: ")
                assert "E1" not in named(lesson)
    assert named(told(key, advice(world, key).do)) == text(world, key), "the first is the usual one"
    assert {
        (lesson["experience"], lesson["problem"])
        for seed in range(20)
        for lesson in taught(topic, four, library_of(key), seed)
    } == {("E1", "confirmed")}
