"""Several options: which ones a response chooses, and what that is worth."""

from pathlib import Path

import pytest

from grpo_practice.core.types import Answer, Sample
from grpo_practice.verify.builtin import choice
from grpo_practice.verify.chosen_options import chosen_letters
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.suitability import best_suited

CITIES = ["Paris", "Rome", "Bern", "Oslo"]
OPTIONS = dict(zip("ABCD", CITIES, strict=True))


@pytest.mark.parametrize(
    ("response", "letters"),
    [
        (r"\boxed{A, C}", "AC"),
        (r"\boxed{AC}", "AC"),
        (r"\boxed{\text{A and C}}", "AC"),
        (r"\boxed{Rome}", "B"),
        (r"Answers: A, C are tempting. \boxed{B}", "B"),
        ("The answer is A, C.", "AC"),
        ("The answer is A. C is wrong.", "A"),
        ("The correct options are A and C, while B is wrong.", "AC"),
        ("Option A and option C are correct.", "AC"),
        ("**Answers: (A) and (C)**", "AC"),
        ("Answer: A) Paris, C) Bern", "AC"),
        ("Answer:\nA. Paris\nC. Bern", "AC"),
        ("A. no\nB. yes\nC. no\nD. yes\nAnswer: B and D", "BD"),
        ("The answer is C.\n\nLet me double check option A.", "C"),
        ("A and C are correct.", "AC"),
        ("Therefore, A, C, and D.", "ACD"),
        ("(A), (C)", "AC"),
        ("Answer: ABD", "ABD"),
        ("The answer is BAD", ""),
        ("<think>A, B</think>Answer: A; D", "AD"),
        ("I think it is B.\n\nB", "B"),
        ("So the answer is Rome", "B"),
        ("I do not know.", ""),
        ("", ""),
    ],
)
def test_the_options_that_a_response_chooses(response: str, letters: str) -> None:
    assert "".join(sorted(chosen_letters(response, OPTIONS))) == letters


@pytest.mark.parametrize(
    ("gold", "meta", "params"),
    [
        (["A", "C"], {}, {"all": True}),
        ("A, C", {}, {}),
        ("AC", {}, {}),
        ("A, C", {"select": "all"}, {}),
        (["Paris", "Bern"], {}, {"all": True}),
    ],
)
def test_all_of_several_means_exactly_these(
    gold: str | list[str], meta: dict[str, str], params: dict[str, bool]
) -> None:
    sample = Sample("q", gold, meta={"options": CITIES, **meta})
    assert check_gold(resolve("choice", params, None, Path()), sample) is None
    rewards = {said: choice(sample, f"Answer: {said}", **params).reward for said in
               ("A, C", "C and A", "A", "C", "A, B", "A, B, C", "A, B, C, D", "none")}  # fmt: skip
    assert rewards.pop("A, C") == rewards.pop("C and A") == 1
    assert {*rewards.values()} == {0}


def test_any_of_several_stays_any() -> None:
    sample = Sample("q", ["A", "C"], meta={"options": CITIES})
    assert [choice(sample, f"Answer: {said}").reward for said in "ABCD"] == [1, 0, 1, 0]


def test_a_lone_right_option_is_wrong_beside_another_where_all_count() -> None:
    for sample, params in (
        (Sample("q", "B", meta={"options": CITIES, "select": "all"}), {}),
        (Sample("q", "B", meta={"options": CITIES}), {"all": True}),
    ):
        assert choice(sample, "Answer: B", **params).reward == 1
        missed = choice(sample, "Answer: B, C", **params)
        assert missed.reward == 0
        assert missed.critique == "expected B; the answer was B, C"


def test_a_function_is_proposed_by_the_form_of_most_answers() -> None:
    cases: dict[str, list[Answer]] = {
        "math": [4, "-12", "1,234", "007", "$5$", 0.5, "1,234.5", ".5", "50%", "1e-3", "1/2",
                 "[0, 1]", r"\frac{1}{2}", r"2\sqrt{3}", "x = 2", "x^2 + y^2", "7" * 100],
        "choice": ["B", "(c)", "D.", "A, C"],
        "contains": ["Paris", "about 5", "K", "x", "%"],
        "judge": [None, "The answer is 4 because 2+2=4", "1" + "+1" * 60],
    }  # fmt: skip
    found = {(a, best_suited([Sample("q", a)])) for answers in cases.values() for a in answers}
    assert found == {(a, name) for name, answers in cases.items() for a in answers}
    assert best_suited([Sample("q", "A, C"), Sample("r", "B")]) == "choice"


@pytest.mark.parametrize(
    ("gold", "name"),
    [
        ("Paris", "contains"),
        ("the United States of America", "contains"),
        ("He was tired because the night had been long.", "judge"),
        ("因为他很累。所以他睡了", "judge"),
    ],
)
def test_prose_is_not_looked_for_word_for_word(gold: str, name: str) -> None:
    assert best_suited([Sample("q", gold)] * 3) == name
