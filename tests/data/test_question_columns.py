"""Columns beside the question: what is asked with it, and what must not be."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Sample
from tests.data.test_multiple_choice import read


@pytest.mark.parametrize(
    ("mapping", "template"),
    [
        ({}, "{question} {info}"),
        ({"passage": "info"}, None),
        ({"passage": "info"}, "{passage} {question}"),
    ],
)
def test_what_holds_the_answer_is_no_part_of_the_question(
    tmp_path: Path, mapping: dict[str, str], template: str | None
) -> None:
    row = {"question": "Which?", "info": {"right": "gold", "title": "Metals"}}
    mapping = {"answer": "info.right", **mapping}
    with pytest.raises(ConfigError, match=r"'info' holds the answer \('info.right'\)"):
        read(tmp_path, row, mapping=mapping, template=template)
    beside = read(
        tmp_path, row, mapping={"answer": "info.right"}, template="{info.title}: {question}"
    )
    assert beside[0].question == "Metals: Which?"


@pytest.mark.parametrize(
    "first",
    [[], ["red", None, "blue"], ["red", ""], ["red"], [f"{n}" for n in range(27)], "['red', None]"],
)
def test_options_of_a_first_row_that_has_none_to_use_are_not_dropped(
    tmp_path: Path, first: object
) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "Which?", "options": first, "answer": "A"},
        {"question": "And which?", "options": ["red", "blue"], "answer": "B"},
    ]
    asked = [s.question for s in read(tmp_path, *rows, skip_bad=True)]
    assert asked[-1] == "And which?\n\nA. red\nB. blue"
    if first:
        with pytest.raises(DataError, match="are not 2 to 26 texts"):
            read(tmp_path, *rows)
    else:
        assert asked[0] == "Which?"


def test_a_letter_without_a_text_is_no_option(tmp_path: Path) -> None:
    options = {"A": "red", "B": None, "C": "blue"}
    (sample,) = read(tmp_path, {"question": "Which?", "options": options, "answer": "C"})
    assert sample == Sample("Which?\n\nA. red\nB. blue", "B", meta={"options": ["red", "blue"]})


def test_a_list_of_turns_is_told_how_to_name_one(tmp_path: Path) -> None:
    row = {"turns": ["first", "second"], "answer": "1"}
    with pytest.raises(DataError, match="of type list") as e:
        read(tmp_path, row, mapping={"question": "turns"})
    assert e.value.hint == "to use one text of it: --map question=turns.0"
