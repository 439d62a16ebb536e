"""What gives an answer away, and what only names a label or uses a word."""

# ruff: noqa: RUF001 (full-width signs are what models write)

import json
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from grpo_practice.core.types import Answer, Quarantine
from grpo_practice.practice import lint
from grpo_practice.practice.answer_guard import AnswerGuard, StepGuard
from tests.practice.label_tasks import TASKS, Task
from tests.practice.leaks import LEAKS

INTEGERS: list[Answer] = [random.Random(0).choice([n, n % 50]) for n in range(0, 3000, 7)]


def guard(answers: Sequence[Answer], more: Sequence[Answer] = (), told: str = "") -> StepGuard:
    """The guard of a step with these questions, of a dataset with more of them."""
    counted = Counter(json.dumps(answer) for answer in [*answers, *more])
    return AnswerGuard(((json.loads(a), n) for a, n in counted.items()), told).of(answers)


def refused(text: str, answers: Sequence[Answer], own: Sequence[int], **more: Any) -> bool:
    return guard(answers, **more).why_not(text, own) is not None


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_lesson_may_name_a_label_and_may_not_dictate_it(task: Task) -> None:
    assert len(task.good) >= 12
    step, everything = guard(task.answers), range(len(task.answers))
    for text in task.good:
        assert (lint.why_not(text) or step.why_not(text, everything)) is None, text
    for text in task.bad:
        why = lint.why_not(text) or step.why_not(text, everything)
        assert why is not None, text
        assert why.rule == "dictates_answer"


def test_the_table_of_leaks_is_large_enough_to_mean_something() -> None:
    assert len(LEAKS) >= 50


@pytest.mark.parametrize("more", [[], INTEGERS], ids=["few questions", "many questions"])
def test_a_lesson_does_not_give_the_answer_of_its_question_away(more: list[Answer]) -> None:
    step = guard([answer for answer, _, _ in LEAKS], more)
    for slot, (answer, leak, lesson) in enumerate(LEAKS):
        assert step.why_not(leak, [slot]) is not None, (answer, leak)
        assert (lint.why_not(lesson) or step.why_not(lesson, [slot])) is None, (answer, lesson)


@pytest.mark.parametrize(
    "text",
    [
        "Reports: Prefer official United Nations documentation.",
        "Triangle: Use \\frac{1}{2}ab\\sin C with two sides and the angle between them.",
        "Fresh facts: call `search_web` first.",
    ],
)
def test_what_was_refused_by_accident_passes(text: str) -> None:
    answers: list[Answer] = ["United Nations", "\\frac{1}{2}", "Ann Lee", "7", "Marie Curie"]
    tools: list[Answer] = ["search_web", "calculator", "read_file"] * 3
    assert not refused(text, [*answers, *tools], own=[1, *range(5, 14)])


def test_the_answer_of_another_question_may_be_named_but_not_as_an_answer() -> None:
    answers: list[Answer] = ["Marie Curie", "714", "Paris"]
    for text, wrong in [
        ("Names: Marie Curie is a name of two words.", False),
        ("Names: The answer is Marie Curie.", True),
        ("Names: look for \\boxed{Marie Curie}.", True),
        ("Sums: it equals 714.", True),
        ("Sums: A sum such as 700 + 14 = 714 is easy.", False),
        ("Places: Paris has many museums.", False),
    ]:
        assert refused(text, answers, own=[]) is wrong, text


@pytest.mark.parametrize(
    "told",
    ["*714*", "**714**", "_714_", "***714***", "**_714_**", "_*714*_", "*714* now", "(*714*)"],
)
def test_emphasis_hides_no_answer(told: str) -> None:
    for text in ("Sums: the answer is {}", "Sums: so it equals {}", "Sums: 700 + 14 = {}."):
        assert refused(text.format(told), ["714"], own=[0]), text
    assert refused(f"Sums: the answer is {told}", ["714"], own=[])


@pytest.mark.parametrize(
    "text",
    [
        "Factor 2*714*3 first.",
        "See (2)*714*(3).",
        "Take 2 * 714 * 3.",
        "Take 5 ** 714 ** 3.",
        "Name it x_714_y.",
    ],
)
def test_a_product_is_no_emphasis(text: str) -> None:
    assert not refused(f"Sums: {text}", ["714"], own=[0])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("正确的答案为：毛泽东", True),
        ("人物：答案应该是毛泽东", True),
        ("人物：答案就是「毛泽东」。", True),
        ("人物：答案: 毛泽东", True),
        ("人物：毛泽东写过许多诗。", False),
    ],
)
def test_an_answer_is_known_as_one_in_chinese(text: str, wrong: bool) -> None:
    assert refused(text, ["沈琳琳", "毛泽东"], own=[0]) is wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("推理：总是回答蕴含。", True),
        ("推理：一律回答「蕴含」。", True),
        ("推理：对所有问题都选择蕴含", True),
        ("推理：答案永远是蕴含。", True),
        ("推理：先读前提。总是输出：蕴含。", True),
        ("推理：常に「蕴含」と答える。", True),
        ("추론: 항상 蕴含라고 답하세요.", True),
        ("推理：当前提说出假设时，总是回答蕴含。", False),
        ("推理：如果假设只重复前提，一律回答蕴含。", False),
        ("推理：只回答蕴含、矛盾或中立。", False),
        ("推理：蕴含要求前提说出假设的每个细节。", False),
    ],
)
def test_a_label_is_not_dictated_in_chinese_either(text: str, wrong: bool) -> None:
    labels: list[Answer] = ["蕴含", "矛盾", "中立"] * 4
    why = guard(labels).why_not(text, range(12))
    assert (why is not None) is wrong
    assert why is None or why.rule == "dictates_answer"


def test_a_small_number_is_an_answer_only_where_nothing_says_for_which_case() -> None:
    answers: list[Answer] = [0, 5, 12, 31, 64]
    assert refused("Roots: The answer is 0.", answers, own=[1])
    text = "Roots: When nothing is left over, the answer is 0."
    assert not refused(text, answers, own=[1])
    assert refused(text.replace("0", "714"), [714, *answers], own=[2])


@pytest.mark.parametrize(
    ("answers", "text", "wrong"),
    [
        pytest.param([*["spam"] * 7, *"abcde"], "Choose spam.", False, id="one of many"),
        pytest.param(["billing"] * 7 + ["sales", "legal affairs"], "Pick legal affairs.", False,
                     id="a label of one question among labels of many"),
        pytest.param([f"name{n} surname{n}" for n in "abcdefghijkl"], "It is nameb surnameb.",
                     True, id="each its own"),
        pytest.param([*(f"{a}{b} person" for a in "abcdefghij" for b in "klmnop"),
                      *["contradiction", "entailment", "neutral"] * 30],
                     "It is ak person.", True, id="names among more labels"),
        pytest.param([*(f"q{c} person" for c in "abcdefghij"), "yes", "yes", "yes"],
                     "Say yes: it is yes.", False, id="labels among names"),
        pytest.param(["sci-fi, comedy", "comedy", "drama, comedy", "sci-fi", "drama",
                      "drama, sci-fi", "comedy, drama"], "Tag it sci-fi, comedy.", False,
                     id="several labels at once"),
        pytest.param([["comedy", "drama"], ["sci-fi"], ["drama"], ["sci-fi", "comedy"]],
                     "The answer is drama.", False, id="alternatives that others share"),
        pytest.param([*[1] * 9, *[2] * 6, *[3] * 4, 4, 4, 5], "The rating is 5.", False,
                     id="ratings"),
        pytest.param([*range(3, 300, 9), 5, 5, 7, 7], "The number is 7.", True, id="numbers"),
        pytest.param(["714"], "It is 714.", True, id="a single question"),
        pytest.param([f"intent_{a}{b}" for a in "abcd" for b in "abcdefgh" for _ in range(2)],
                     "Choose intent_ab.", False, id="many labels, each of few questions"),
    ],
)  # fmt: skip
def test_the_dataset_says_what_is_a_label(answers: list[Answer], text: str, wrong: bool) -> None:
    assert refused(text, answers, own=range(len(answers))) is wrong


def test_labels_are_counted_over_the_dataset_and_not_over_the_step() -> None:
    step: list[Answer] = ["undetermined", "entailment"]
    text = "Detail: it is undetermined when a detail is added."
    assert refused(text, step, own=[0])
    assert not refused(text, step, own=[0], more=[*step * 9, "contradiction"])


def test_what_the_agent_is_told_is_no_secret() -> None:
    answers: list[Answer] = ["get_weather", "send_email", "run_query", "714", "a"]
    text = "Weather: call get_weather with a city."
    assert refused(text, answers, own=[0])
    told = "Name a tool: get_weather, send_email or run_query. There are 714 of them, a lot."
    assert not refused(text, answers, own=[0], told=told)
    assert refused("Sum: it is 714.", answers, own=[3], told=told)
    assert refused("Letter: the answer is (A).", answers, own=[4], told=told)


def test_nothing_is_guarded_where_there_is_no_answer() -> None:
    answers: list[Answer] = [None, "", " ", []]
    assert not refused("Units: the answer is in metres.", answers, own=range(4))


def test_the_guard_says_by_which_rule() -> None:
    step = guard(["714", "Marie Curie"])
    own = step.why_not("It is 714.", [0])
    other = step.why_not("The answer is 714.", [1])
    assert own
    assert other
    assert own.rule == other.rule == "gives_answer_away"
    assert own.sentence == "it gives away the answer of its own question"
    assert other.sentence == "it gives away an answer of this step"


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    "piece",
    [
        "answer is ",
        "answer number ",
        "\\frac{1}{",
        "{{",
        "1,",
        "-",
        "in every case, ",
        "a or ",
        "*a ",
        "**_*",
        "应该",
        ". ",
    ],
)
def test_a_text_made_to_be_slow_is_not(piece: str) -> None:
    answers: list[Answer] = [f"answer number {i}" for i in range(500)]
    began = time.process_time()
    step = guard([*answers, piece * 5_000])
    step.why_not((piece * 500)[:500], range(500))
    assert time.process_time() - began < 30  # seconds of this process; with the square, minutes


@pytest.mark.long
def test_the_answers_of_a_large_dataset_are_not_kept() -> None:
    step = guard(["Ann Lee"])  # imports what is slow to import
    n, most = 2_000, 1_000_000

    def answers() -> Iterator[tuple[Answer, int]]:
        yield "a label", n
        for i in range(n):
            yield " ".join(f"word{i}x{k}" for k in range(50)), 1

    tracemalloc.start()
    try:
        large = AnswerGuard(answers())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most
    step = large.of(["a label", "word7x1"])
    always = "Sums: always answer with {}."
    assert step.why_not(always.format("a label"), [0]) == Quarantine(
        "dictates_answer", "it dictates an answer"
    )
    assert step.why_not(always.format("word7x1"), [1]) is not None
