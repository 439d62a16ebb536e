import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.sim import answer
from grpo_practice.sim.experience_texts import advice, keys_in, text
from grpo_practice.sim.questions import TOPICS, questions
from grpo_practice.sim.world import Difficulty, Failing, Item, Rule, Teaching, World, topic_of

WORLD = World()
QUESTIONS = [s.question for s in questions(100, seed=0)]
HELPFUL = [WORLD.key(topic, "help") for topic in TOPICS]


def test_practice_can_lift_the_default_world_from_under_60_to_over_75_percent() -> None:
    before, after = WORLD.truth(QUESTIONS, []), WORLD.truth(QUESTIONS, HELPFUL)
    assert 0.5 < before.mean() < 0.6
    assert 0.75 < after.mean() < 0.88
    middle = ((before > 0.25) & (before < 0.75)).mean()
    assert middle < 0.45, "most questions are easy or hard"


def test_the_formula_of_the_world_is_followed() -> None:
    items = {"percent-aa": Item("help", 1.0, 0.25), "speed-aa": Item("harm", -2.0, -0.5)}
    world = World(items=items, dilution=0.5)
    question = QUESTIONS[0]
    assert topic_of("percent-aa") == "percent"
    theta = np.log(p := world.p(question, [], 0)) - np.log(1 - p)
    shown = world.p(question, ["percent-aa", "speed-aa"], 400)
    assert np.log(shown / (1 - shown)) == pytest.approx(theta + 1.0 - 0.5 - 0.5 * 400 / 1_000)


def test_a_key_shown_twice_counts_once() -> None:
    key = HELPFUL[0]
    assert WORLD.p(QUESTIONS[0], [key, key], 50) == WORLD.p(QUESTIONS[0], [key], 50)
    assert (WORLD.truth(QUESTIONS, [key, key]) == WORLD.truth(QUESTIONS, [key])).all()


INERT = [f"percent-{i:02x}f" for i in range(3)]
JITTERY = World(jitter=0.7, items={key: Item("null", 0, 0, tokens=0) for key in INERT})


def added(questions: list[str], keys: list[str], world: World = JITTERY) -> "np.ndarray[Any, Any]":
    """The logits that jitter adds to each question."""
    here, without = (w.truth(questions, keys) for w in (world, replace(world, jitter=0.0)))
    logits: np.ndarray[Any, Any] = np.log(here / (1 - here)) - np.log(without / (1 - without))
    return logits


def test_jitter_has_mean_zero_and_its_standard_deviation_over_questions() -> None:
    many = [s.question for s in questions(2_000, seed=0)]
    for keys in ([], INERT):
        logits = added(many, keys)
        assert abs(logits.mean()) < 4.5 * 0.7 / np.sqrt(len(many))
        assert logits.std() == pytest.approx(0.7, rel=0.08)
    assert abs(np.corrcoef(added(many, []), added(many, INERT))[0, 1]) < 0.1


def test_jitter_is_fixed_by_the_question_and_the_set_of_keys() -> None:
    a, b, c = INERT
    for keys in ([b, a], [a, b, a]):
        assert (JITTERY.truth(QUESTIONS, keys) == JITTERY.truth(QUESTIONS, [a, b])).all()
    for other in ([a], [a, c], [a, b, c], []):
        assert (added(QUESTIONS, other) != added(QUESTIONS, [a, b])).all()
    wrapped = [f"Solve this: {question} Thank you." for question in QUESTIONS]
    assert (JITTERY.truth(wrapped, [a]) == JITTERY.truth(QUESTIONS, [a])).all()


def test_drift_adds_logits_by_the_number_of_requests_before() -> None:
    world = World(drift=-3.0)
    first, later = (world.p(QUESTIONS[0], HELPFUL, 50, served=n) for n in (0, 500))
    assert first == WORLD.p(QUESTIONS[0], HELPFUL, 50)
    assert np.log(later / (1 - later)) == pytest.approx(np.log(first / (1 - first)) - 1.5)
    assert (world.truth(QUESTIONS, []) == WORLD.truth(QUESTIONS, [])).all()


def test_the_default_world_answers_as_it_always_has() -> None:
    told = f"(#{WORLD.key('percent', 'help')}) (#{WORLD.key('speed', 'harm')})"
    asked = [
        {"messages": [{"role": "user", "content": f"{q}\n\n{shown}"}], "seed": seed}
        for q in QUESTIONS[:20]
        for shown in ("", told)
        for seed in range(5)
    ]
    assert WORLD.truth(QUESTIONS, HELPFUL).sum() == pytest.approx(82.15133719064673, rel=1e-12)
    replies = json.dumps([answer(body) for body in asked]).encode()
    assert sha256(replies).hexdigest().startswith("37a4dd95f69198f0")


def test_shares_of_kinds_follow_the_rule() -> None:
    world = World(seed=3, rule=Rule(p_help=0.5, p_null=0.2))
    kinds = [world.item(f"percent-{i:04x}").kind for i in range(4_000)]
    shares = [kinds.count(kind) / 4_000 for kind in ("help", "null", "harm")]
    assert shares == pytest.approx([0.5, 0.2, 0.3], abs=0.03)
    sizes = [abs(world.item(f"percent-{i:04x}").own) for i in range(4_000)]
    assert all(size == 0 or 1.5 <= size <= 2.5 for size in sizes)


def test_harm_may_have_a_range_of_its_own() -> None:
    world = World(rule=Rule(p_null=0.0, size=(0.0, 1.3), harm_size=(0.0, 0.9)))
    effects = [world.item(f"percent-{i:04x}").own for i in range(4_000)]
    assert -0.9 < min(effects) < -0.85
    assert 1.25 < max(effects) < 1.3
    assert sum(effect > 0 for effect in effects) == pytest.approx(1_600, abs=120)
    assert replace(world, rule=replace(world.rule, harm_size=None)).item("percent-0000").own == (
        pytest.approx(effects[0] if effects[0] > 0 else effects[0] / 0.9 * 1.3)
    )


def test_an_unknown_question_has_no_chance() -> None:
    assert WORLD.p("What is 2 + 2?", HELPFUL, 0) == 0.0


def test_an_enormous_prompt_has_a_chance_of_nearly_0() -> None:
    assert WORLD.p(QUESTIONS[0], [], 1e9) < 1e-300


def test_another_seed_is_another_world() -> None:
    other = World(seed=1)
    assert np.abs(other.truth(QUESTIONS, []) - WORLD.truth(QUESTIONS, [])).mean() > 0.2
    assert {other.key(t, "help") for t in TOPICS} != set(HELPFUL)


def test_lessons_get_better_with_witnesses_on_both_sides() -> None:
    teacher = Teaching()
    rising = [teacher.p_help(*wl) for wl in [(1, 1), (1, 2), (2, 2), (2, 3)]]
    assert rising == sorted(set(rising))
    assert teacher.p_help(5, 0) == teacher.p_help(0, 5) == teacher.p_help(0, 0) == teacher.luck
    assert teacher.p_help(2, 3, truth=False) < teacher.p_help(2, 3)


def test_a_world_is_loaded_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    path.write_text(
        '{"seed": 7, "difficulty": {"a": 2, "b": 3}, "rule": {"size": [1, 2], "harm_size": [0, 1]},'
        ' "items": {"percent-aa": {"kind": "harm", "own": -1, "other": 0}}, "dilution": 1.5,'
        ' "task": "labels", "teacher": {"noise": 0.3, "wordings": 4},'
        ' "jitter": 0.5, "drift": -2, "fail": {"wrong": 0.1}}'
    )
    loaded = World.load(path)
    assert (loaded.seed, loaded.dilution, loaded.rule.size) == (7, 1.5, (1.0, 2.0))
    assert loaded.difficulty == Difficulty(2, 3)
    assert loaded.rule.harm_size == (0.0, 1.0)
    assert (loaded.task, loaded.teacher) == ("labels", Teaching(noise=0.3, wordings=4))
    assert loaded.item("percent-aa") == Item("harm", -1.0, 0.0)
    assert (loaded.jitter, loaded.drift, loaded.fail) == (0.5, -2.0, Failing(0.0, 0.1))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"sede": 7}', "sede"),
        ('{"rule": {"p_hlp": 1}}', r"rule\.p_hlp"),
        ('{"rule": {"p_help": 0.9, "p_null": 0.2}}', "p_help and p_null"),
        ('{"difficulty": {"a": 0, "b": 1}}', "a and b must be above 0"),
        ('{"items": {"k": {"kind": "good", "own": 1, "other": 0}}}', r"items\.k\.kind"),
        ('{"task": "sums"}', "task"),
        ('{"teacher": {"noise": 1.5}}', "noise must be a share"),
        ('{"teacher": {"bias": -0.1}}', "bias must be a share"),
        ('{"teacher": {"adds": 2}}', "adds must be a share"),
        ('{"teacher": {"truism": 1.01}}', "truism must be a share"),
        ('{"teacher": {"wordings": 5}}', r"teacher\.wordings"),
        ('{"teacher": {"forms": "yaml"}}', r"teacher\.forms"),
        ('{"jitter": -1}', "jitter must be a finite number of at least 0"),
        ('{"jitter": 1e999}', "jitter: .*finite"),
        ('{"drift": NaN}', "drift: .*finite"),
        ('{"dilution": -Infinity}', "dilution: .*finite"),
        ('{"items": {"k": {"kind": "harm", "own": NaN, "other": 0}}}', r"items\.k\.own: .*finite"),
        ('{"fail": {"right": 1.5}}', "right and wrong must be shares"),
        ('{"fail": {"wrong": -0.1}}', "right and wrong must be shares"),
        ('{"fail": 0.5}', "fail"),
        ('{"fail": {"rihgt": 0.5}}', r"fail\.rihgt"),
        ("[", "JSON"),
    ],
)
def test_a_wrong_world_file_is_an_error_that_names_file_and_key(
    content: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "world.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"world\.json.*{said}"):
        World.load(path)


def test_a_missing_world_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        World.load(tmp_path / "nowhere.json")


def test_every_experience_reads_as_name_and_sentence_with_its_marker() -> None:
    for topic in TOPICS:
        keys = [WORLD.key(topic, kind, n) for kind in ("help", "null", "harm") for n in (0, 1)]
        for key in keys:
            assert keys_in(text(WORLD, key)) == [key]
            name, _, sentence = text(WORLD, key).partition(": ")
            assert name == advice(WORLD, key).name
            assert sentence.startswith("When ")
            assert len(sentence.split()) <= 40
        said = {advice(WORLD, key) for key in keys if key != WORLD.key(topic, "help", 1)}
        assert len(said) == 5, "one right way, two slips, two platitudes"


def test_a_world_without_helpful_experiences_can_still_be_played() -> None:
    world = World(rule=Rule(p_help=0.0, p_null=1.0))
    assert world.item(world.key("percent", "help")).kind == "null"


def test_an_unknown_subject_gets_one_of_the_topics() -> None:
    assert {topic_of(f"word{chr(97 + i)}-0a") for i in range(26)} <= set(TOPICS)


@pytest.mark.parametrize("changes", [{"jitter": float("nan")}, {"drift": float("inf")}])
def test_a_world_of_impossible_numbers_is_not_made(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        replace(WORLD, **changes)  # type: ignore[arg-type]
