from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from grpo_practice.core.types import Library
from grpo_practice.sim import DEFAULT, World
from grpo_practice.sim.experience_texts import keys_in
from grpo_practice.sim.questions import TOPICS, find, questions
from grpo_practice.sim.world import EffectKind, Teaching, topic_of
from tests.sim.stages import (
    EMPTY,
    Attempt,
    compare,
    group,
    keys_of,
    library_of,
    merge,
    play,
    propose,
    reward,
    summarise,
)

Change = Callable[[list[Attempt]], list[Attempt]]


@cache
def informative(library: Library = EMPTY, n: int = 400) -> list[tuple[str, list[Attempt]]]:
    """Groups with right and wrong attempts, as practice finds them."""
    played = [(s.question, group(s.question, library, i)) for i, s in enumerate(questions(n, 9))]
    return [(q, g) for q, g in played if len({a.reward for a in g}) == 2]


def shares(
    change: Change = lambda group: group, *, truth: bool = True, world: World = DEFAULT
) -> dict[str, float]:
    """Shares of help, null and harm among the lessons of all groups, as told to the teacher."""
    kinds: Counter[str] = Counter()
    for seed, (question, attempts) in enumerate(informative()):
        shown = change(list(attempts))
        for lesson in compare(question, shown, seed=seed, truth=truth, world=world):
            (key,) = keys_in(lesson["lesson"])
            kinds[DEFAULT.item(key).kind] += 1
    return {kind: count / kinds.total() for kind, count in kinds.items()}


def emptied(attempts: list[Attempt]) -> list[Attempt]:
    return [replace(a, text="The attempt worked on the task.") for a in attempts]


def losers_only(attempts: list[Attempt]) -> list[Attempt]:
    return [a for a in attempts if a.reward == 0]


def winners_only(attempts: list[Attempt]) -> list[Attempt]:
    return [a for a in attempts if a.reward == 1]


def one_pair(attempts: list[Attempt]) -> list[Attempt]:
    return [attempts[0], attempts[-1]]


def swapped(attempts: list[Attempt]) -> list[Attempt]:
    return [replace(a, reward=1 - a.reward) for a in attempts]


@pytest.mark.long
def test_there_are_enough_groups_to_compare() -> None:
    assert len(informative()) > 120


@pytest.mark.long
def test_a_full_comparison_mostly_helps() -> None:
    told = shares()
    assert told["help"] > 0.7
    assert told["harm"] < 0.2


@pytest.mark.parametrize("change", [emptied, losers_only, winners_only])
def test_a_comparison_that_lost_one_side_hardly_helps(change: Change) -> None:
    assert shares(change)["help"] < 0.15


def test_fewer_witnesses_teach_less() -> None:
    assert shares()["help"] - 0.1 > shares(one_pair)["help"] > 0.4


def test_without_rewards_lessons_are_worse_but_not_worthless() -> None:
    assert shares()["help"] - 0.15 > shares(truth=False)["help"] > 0.3


def test_rewards_that_lie_teach_the_wrong_method() -> None:
    assert shares(swapped)["harm"] > 0.7


def test_a_confused_teacher_takes_the_worse_way_for_the_better_one() -> None:
    """As often as it is confused, whatever the rewards say."""
    sure, noisy = (
        shares(world=World(teacher=Teaching(top=1.0, miss=0.0, noise=noise))) for noise in (0, 0.3)
    )
    assert sure["help"] == 1.0
    assert abs(noisy["harm"] - 0.3) < 0.1
    assert noisy["help"] + noisy["harm"] == 1.0


def test_the_teacher_knows_no_more_than_it_is_shown() -> None:
    """In a world where the very same texts are worth the opposite, it says the very same."""
    swapped: dict[EffectKind, EffectKind] = {"help": "harm", "harm": "help"}
    items = {
        (key := DEFAULT.key(topic, kind, n)): replace(DEFAULT.item(key), kind=other)
        for topic in TOPICS
        for kind, other in swapped.items()
        for n in (0, 1)
    }
    harmful = library_of(*(DEFAULT.key(topic, "harm") for topic in TOPICS))
    sure = Teaching(top=1.0, miss=0.0, blind=1.0)
    worlds = World(teacher=sure), World(items=items, teacher=sure)
    for library in (EMPTY, harmful):
        for truth in (True, False):
            for seed, (question, attempts) in enumerate(informative()[:40]):
                told = [
                    compare(question, attempts, library, seed=seed, truth=truth, world=world)
                    for world in worlds
                ]
                assert told[0] == told[1]
                assert told[0]


def test_without_rewards_what_most_attempts_answered_is_taken_for_right() -> None:
    world = World(teacher=Teaching(top=1.0, miss=0.0, blind=1.0))
    for seed, (question, attempts) in enumerate(informative()):
        (lesson,) = compare(question, attempts, seed=seed, truth=False, world=world)
        right = sum(a.reward for a in attempts)
        (key,) = keys_in(lesson["lesson"])
        if right > len(attempts) - right:
            assert DEFAULT.item(key).kind == "help"
        elif right == 1:
            assert DEFAULT.item(key).kind == "harm"


def test_lessons_are_about_the_topic_and_carry_no_number_of_the_task() -> None:
    for seed, (question, attempts) in enumerate(informative()[:40]):
        found = find(question)
        assert found is not None
        for lesson in compare(question, attempts, seed=seed):
            (key,) = keys_in(lesson["lesson"])
            assert topic_of(key) == found.topic
            assert not set(lesson["lesson"].split()) & {w for w in question.split() if w.isdigit()}
            assert len(lesson["lesson"].split()) <= 40


def test_what_the_library_says_is_confirmed_and_not_suggested_again() -> None:
    full = library_of(*(DEFAULT.key(topic, "help") for topic in TOPICS))
    keys = keys_of(full)
    told = [
        lesson
        for seed, (question, attempts) in enumerate(informative())
        for lesson in compare(question, attempts, full, seed=seed)
    ]
    assert len(told) > 0.8 * len(informative())
    confirmed = [lesson for lesson in told if lesson["problem"] == "confirmed"]
    for lesson in confirmed:
        assert keys_in(lesson["lesson"]) == [keys[int(lesson["experience"][1:]) - 1]]
    assert len(confirmed) > 0.8 * len(told)
    assert {lesson["problem"] for lesson in told} == {"confirmed", "misled"}, "it errs, too"


@pytest.mark.long
def test_an_experience_that_says_another_way_in_the_same_situation_misled() -> None:
    kinds: tuple[EffectKind, ...] = ("harm", "null")
    for kind in kinds:
        other = library_of(*(DEFAULT.key(topic, kind) for topic in TOPICS))
        topics = {topic: f"E{i}" for i, topic in enumerate(TOPICS, 1)}
        told = [compare(q, g, other, seed=seed)[:1] for seed, (q, g) in enumerate(informative())]
        found = Counter(lesson.get("problem") for lessons in told for lesson in lessons)
        assert found["misled"] > 0.7 * found.total()
        for (question, _), lessons in zip(informative(), told, strict=True):
            known = find(question)
            assert known is not None
            assert {lesson["experience"] for lesson in lessons} <= {topics[known.topic]}


def test_good_advice_on_one_topic_does_not_stop_lessons_on_another() -> None:
    library = library_of(DEFAULT.key("posts", "help"))
    others = [(q, g) for q, g in informative() if "Posts" not in q and "trees" not in q]
    told = [compare(q, g, library, seed=seed) for seed, (q, g) in enumerate(others)]
    assert sum(map(bool, told)) == len(others)


def misled(library: Library, limit: int = 2) -> list[list[dict[str, str]]]:
    """The lessons of informative groups whose losers followed a harmful experience."""
    found = []
    for seed, (question, attempts) in enumerate(informative(library, 200)):
        if any(f"Followed {library.experiences[0].id}" in a.text for a in attempts):
            found.append(compare(question, attempts, library, seed=seed, limit=limit))
    return found


@pytest.mark.long
def test_an_experience_that_losers_followed_is_named_as_misleading() -> None:
    harmful = library_of(DEFAULT.key("posts", "harm"))
    told = misled(harmful)
    named = [lessons for lessons in told if lessons and lessons[0].get("problem") == "misled"]
    assert len(told) >= 5
    assert len(named) > len(told) / 2
    for first, *_ in named:
        assert first["experience"] == "E1"
        assert "E1, which misled" in first["lesson"]
    remedies = [lessons for lessons in named if keys_in(lessons[0]["lesson"])]
    assert remedies
    assert all(len(lessons) == 1 for lessons in remedies), "and the remedy is not said again"


@pytest.mark.long
def test_at_most_as_many_lessons_as_asked_for_are_given() -> None:
    harmful = library_of(DEFAULT.key("posts", "harm"))
    assert max(len(lessons) for lessons in misled(harmful, limit=1)) == 1


@pytest.mark.parametrize(
    ("winners", "losers", "named"),
    [("none", "E1", True), ("E1", "E1", False), ("E1", "none", False), ("none", "none", False)],
)
def test_only_what_losers_alone_followed_is_called_misleading(
    winners: str, losers: str, named: bool
) -> None:
    question = next(s.question for s in questions(10, 0) if s.source == "posts")
    right, wrong = DEFAULT.key("posts", "help"), DEFAULT.key("posts", "harm")
    attempts = [
        Attempt(1, 1, 1, "E1", f"Method {right}: count. Followed {winners}."),
        Attempt(2, 0, 2, "E1", f"Method {wrong}: count. Followed {losers}."),
    ]
    library = library_of(DEFAULT.key("posts", "null"))
    told = [compare(question, attempts, library, seed=seed) for seed in range(40)]
    warned = [lesson for lessons in told for lesson in lessons if not keys_in(lesson["lesson"])]
    assert bool(warned) is named
    assert all(lesson["problem"] == "misled" for lesson in warned)


def test_a_summary_tells_the_method_the_experience_and_the_answer() -> None:
    question = questions(1, 0)[0].question
    library = library_of(DEFAULT.key("percent", "help"))
    replies = [play(question, library, seed) for seed in range(40)]
    right = next(reply for reply in replies if reward(question, reply))
    told = summarise(question, right, library)
    method = next(line for line in right.splitlines() if line.startswith("Method"))
    assert method in told
    assert "Followed E1." in told
    assert "It was judged: expected 25, as said" in told
    assert right.rpartition("{")[2].rstrip("}") in told


def test_a_summary_of_a_cut_attempt_tells_nothing_it_does_not_show() -> None:
    question = questions(1, 0)[0].question
    told = summarise(question, play(question, EMPTY, 0)[:40], EMPTY)
    assert "Method" not in told
    assert "It gave no answer." in told


def apply(library: Library, operations: Sequence[dict[str, str]]) -> Library:
    """A library with the experiences that the merged operations leave."""
    keys = {e.id: keys_in(e.text)[0] for e in library.experiences}
    for operation in operations:
        if operation["op"] == "DELETE":
            del keys[operation["id"]]
        elif operation["op"] == "UPDATE":
            keys[operation["id"]] = keys_in(operation["text"])[0]
        elif operation["op"] == "ADD":
            keys[f"new {operation['text']}"] = keys_in(operation["text"])[0]
    return library_of(*keys.values())


def test_two_steps_of_practice_make_the_student_better() -> None:
    library = library_of(DEFAULT.key("posts", "harm"), DEFAULT.key("rate", "null"))
    tests = [s.question for s in questions(200, seed=77)]
    scores = [DEFAULT.truth(tests, keys_of(library)).mean()]
    for step, batch in enumerate((questions(60, 3)[:30], questions(60, 3)[30:])):
        proposals: list[dict[str, str]] = []
        for slot, sample in enumerate(batch):
            attempts = group(sample.question, library, 100 * step + slot)
            if len({a.reward for a in attempts}) == 2:
                lessons = compare(sample.question, attempts, library, seed=slot, limit=2)
                told = [lesson["lesson"] for lesson in lessons]
                proposals += [o for o in propose(told, library) if o["op"] != "NONE"]
        library = apply(library, merge(proposals, library))
        scores.append(DEFAULT.truth(tests, keys_of(library)).mean())
        assert len(set(keys_of(library))) == len(library.experiences)
    assert scores[1] > scores[0] + 0.07
    assert scores[2] > scores[0] + 0.1
