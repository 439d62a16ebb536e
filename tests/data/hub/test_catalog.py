"""The published datasets: what is taken out, what is kept, and in which order."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from grpo_practice.core.errors import DataError
from grpo_practice.data import catalog
from grpo_practice.data.catalog import CATALOG, Prepared
from grpo_practice.data.text_lines import Row
from tests.data.hub.made import AFTER, BEFORE, REPOS

ROOT = Path(__file__).parents[3]

DEALT = "eeeemmmmmmmhhhhhh"
"""The first 17 difficulties of WebWalkerQA, when there are enough of each."""


def rows(fields: Sequence[dict[str, Any]]) -> list[Row | DataError]:
    return [Row(f"row {i}", f) for i, f in enumerate(fields, 1)]


def wrapped(question: str, answer: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": BEFORE + question + AFTER}],
        "reward_model": {"ground_truth": answer, "style": "rule"},
    }


def fields(made: Prepared) -> list[dict[str, Any]]:
    assert all(isinstance(row, Row) for row in made[0])
    return [row.fields for row in made[0] if isinstance(row, Row)]


def test_dapo_the_wrapper_is_taken_off_and_nothing_else() -> None:
    problem = f'  What is 1+1?\nAnswer: {BEFORE[:20]} "Answer:".  '
    [row] = fields(catalog.dapo(rows([wrapped(problem, "2")]), Random(42)))
    assert row == {"question": problem, "answer": "2"}
    bare = {"prompt": "1+1?", "reward_model": json.dumps({"ground_truth": "2"})}
    made = catalog.dapo(rows([bare, bare]), Random(42))
    assert fields(made) == [{"question": "1+1?", "answer": "2"}]
    assert made[1][-1].startswith("1 problems lack the usual wrapper text")


def test_dapo_a_problem_is_kept_once_where_it_came_first_with_its_last_answer() -> None:
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("a", "5"), ("b", "2")]
    made = catalog.dapo(rows([wrapped(*pair) for pair in pairs]), NeverShuffled())
    assert [(f["question"], f["answer"]) for f in fields(made)] == [
        ("a", "5"),
        ("b", "2"),
        ("c", "4"),
    ]
    assert made[1] == [
        "3 of 6 rows repeat a problem: each problem is kept once",
        "2 of them give a different answer: the last answer is kept",
    ]


class NeverShuffled(Random):
    @override
    def shuffle(self, x: Any) -> None:
        pass


def test_dapo_the_order_is_that_of_the_published_shuffle() -> None:
    many = [wrapped(str(i), "1") for i in range(10)] * 2
    found = [f["question"] for f in fields(catalog.dapo(rows(many), Random(catalog.SEED)))]
    assert found == ["7", "3", "2", "8", "5", "6", "9", "4", "0", "1"]


def test_afm_rows_with_one_answer_alone_are_kept_in_a_seeded_order() -> None:
    many = [
        {"extra_info": {"question": f"q{i}", "answer": ["a"] * (i % 3)}, "prompt": "x"}
        for i in range(12)
    ]
    many.append({"extra_info": {"question": "text", "answer": "a"}})
    made = catalog.afm(rows(many), Random(catalog.SEED))
    assert [f["question"] for f in fields(made)] == ["q10", "q4", "q7", "text", "q1"]
    assert fields(made)[1] == {"question": "q4", "answer": "a", "meta": {"id": 5}}
    assert made[1] == ["8 of 13 rows left out: they do not have exactly one answer"]


def walk(question: str, level: object) -> dict[str, Any]:
    info = {"difficulty_level": level, "lang": "en"}
    return {"question": question, "answer": "a", "root_url": "https://example.org", "info": info}


def test_webwalker_difficulties_are_dealt_out_four_seven_six() -> None:
    levels = ["easy"] * 9 + ["medium"] * 14 + ["hard"] * 12
    made = catalog.webwalker(rows([walk(str(i), lv) for i, lv in enumerate(levels)]), Random(42))
    found = "".join(f["level"][0] for f in fields(made))
    assert found == DEALT * 2 + "e"  # what is left over comes at the end
    assert sorted(int(f["question"]) for f in fields(made)) == list(range(35))
    assert [f["question"] for f in fields(made)[:4]] != ["0", "1", "2", "3"]
    assert fields(made)[0]["meta"] == {
        "id": int(fields(made)[0]["question"]) + 1,
        "root_url": "https://example.org",
        "lang": "en",
    }
    assert made[1][0].startswith("9 easy, 14 medium, 12 hard: four easy, seven medium, six hard")
    again = catalog.webwalker(rows([walk(str(i), lv) for i, lv in enumerate(levels)]), Random(42))
    assert again == made


def test_webwalker_the_order_is_fixed() -> None:
    levels = ["easy"] * 4 + ["medium"] * 7 + ["hard"] * 6
    made = catalog.webwalker(rows([walk(str(i), lv) for i, lv in enumerate(levels)]), Random(42))
    order = "0 3 1 2 5 10 9 4 6 7 8 15 14 11 16 13 12"
    assert " ".join(f["question"] for f in fields(made)) == order


@pytest.mark.parametrize("name", CATALOG)
def test_a_dataset_is_served_to_the_tests_and_can_be_found_by_a_reader(name: str) -> None:
    where = CATALOG[name].ref.repo
    assert REPOS.get(name) == where, "name it in REPOS of tests/data/hub/made.py"
    table = (ROOT / "docs/data.md").read_text("utf-8")
    assert f"| `{name}` | `{where}` |" in table, "docs/data.md lacks its line in the table"
    said = (ROOT / "src/grpo_practice/cli/data.py").read_text("utf-8")
    assert f"{name}," in said, "the help of `data download` in cli/data.py lacks it"


@pytest.mark.parametrize(
    ("name", "bad", "says"),
    [
        ("AIME24", {"text": "1+1"}, "row 1: no 'problem'; the row has 'text'"),
        ("DAPO-Math-17k", {"prompt": 1}, "row 1: 'prompt' is neither a text nor a message"),
        ("DAPO-Math-17k", {"prompt": "x", "reward_model": "[1"}, "row 1: no 'ground_truth'"),
        ("AFM_web_RL", {"extra_info": {"question": "q"}}, "row 1: no 'answer'"),
        ("WebWalkerQA", walk("q", "evil"), "row 1: 'info.difficulty_level' is 'evil'"),
    ],
)
def test_a_row_that_is_not_as_published_is_an_error_and_spoils_no_other(
    name: str, bad: dict[str, Any], says: str
) -> None:
    error = DataError("f:row 9: broken")
    made, _ = CATALOG[name].prepare([Row("row 1", bad), error], Random(42))
    assert error in made
    [found] = [row for row in made if row is not error]
    assert isinstance(found, DataError)
    assert str(found).startswith(says)
    assert found.hint
    assert "--revision" in found.hint
