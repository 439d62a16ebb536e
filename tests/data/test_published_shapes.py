from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Sample
from grpo_practice.data.answers import AFTER_HASHES, IN_BOX, PLAIN, form_of
from grpo_practice.data.columns import find_columns
from grpo_practice.data.row_layout import find_layout, to_sample


def sample(fields: dict[str, Any], **mapping: str) -> Sample:
    """The sample of a file with this one row; `meta__key` stands for `meta.key`."""
    layout = find_layout(fields, {k.replace("__", "."): v for k, v in mapping.items()})
    parts = layout.parts(fields)
    answer = parts.answer
    form = form_of(answer, layout.answer) if isinstance(answer, str) and answer.strip() else PLAIN
    return to_sample(fields, layout, parts, form)


def test_native_fields_are_taken_and_all_others_go_to_meta() -> None:
    s = sample(
        {
            "question": "q",
            "answer": "a",
            "source": "web",
            "level": 5,
            "cluster": "c1",
            "meta": {"x": [1]},
            "id": 7,
            "note": None,
        }
    )
    meta = {"x": [1], "id": 7, "note": None}
    assert s == Sample("q", "a", source="web", level="5", cluster="c1", meta=meta)


def test_gsm8k_answer_stands_after_the_last_hashes_and_the_solution_is_kept() -> None:
    s = sample({"question": "q", "answer": "First #### 3\n2*500=1000\n####  1,000 \n"})
    assert s.answer == "1,000"
    assert s.meta == {"solution": "First #### 3\n2*500=1000"}


@pytest.mark.parametrize("text", ["call 0800-####-####", "#### \n", "#### Title\ntext", "#5"])
def test_hashes_elsewhere_are_part_of_the_answer(text: str) -> None:
    assert form_of(text, "answer") is PLAIN


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so \boxed{2}, no: \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"$\boxed{\left[0,1\right\}}$", r"\left[0,1\right\}"),
        (r"\boxed{ \text{a}\\{b} }", r"\text{a}\\{b}"),
        (r"$x = \boxed 7$, so", "7"),
        (r"\fbox{A}", "A"),
        (r"\boxed {3}", "3"),
    ],
)
def test_math_answer_is_what_the_last_box_holds(solution: str, answer: str) -> None:
    s = sample({"problem": "p", "solution": solution, "level": "Level 5", "type": "Algebra"})
    assert s.answer == answer
    assert s.level == "Level 5"
    assert s.meta == {"type": "Algebra", "solution": solution}


def test_a_box_never_closed_is_no_answer() -> None:
    assert form_of(r"\boxed{\frac{1}{2}", "solution") is PLAIN
    assert form_of(r"\boxed{}", "solution") is PLAIN


def test_a_box_in_a_column_of_answers_is_left_alone() -> None:
    assert sample({"question": "q", "answer": r"\boxed{3}"}).answer == r"\boxed{3}"


def test_an_answer_column_goes_before_the_worked_solution() -> None:
    s = sample({"problem": "p", "solution": r"\boxed{1}", "answer": "2"})
    assert (s.answer, s.meta) == ("2", {"solution": r"\boxed{1}"})


@pytest.mark.parametrize(
    ("question", "answer"),
    [("Problem", "Answer"), ("prompt", "target"), ("QUERY", "gold"), ("input", "label")],
)
def test_common_names_are_known_in_any_case(question: str, answer: str) -> None:
    s = sample({"id": "1", question: "q", answer: 42})
    assert (s.question, s.answer, s.meta) == ("q", 42, {"id": "1"})


@pytest.mark.parametrize(
    ("first", "role"),
    [
        (["question", "prompt"], "question"),
        (["question", "Question"], "question"),
        (["question", "gold", "answer"], "answer"),
    ],
)
def test_two_candidates_are_an_error_that_names_the_way_out(first: list[str], role: str) -> None:
    with pytest.raises(DataError, match="may both be") as caught:
        find_columns(dict.fromkeys(first), {})
    assert f"--map {role}=" in str(caught.value.hint)


def test_no_candidate_for_the_question_is_an_error_that_shows_the_columns() -> None:
    with pytest.raises(DataError, match="'What is 2\\+2\\?', '4'") as caught:
        find_columns({"What is 2+2?": "", "4": ""}, {})
    assert "--map question=" in str(caught.value.hint)


def test_the_mapping_wins_over_every_guess() -> None:
    fields = {"question": "no", "prompt": "q", "answer": "no", "gold": "a", "source": 3, "b": 4}
    s = sample(
        fields, question="prompt", answer="gold", level="b", meta__origin="source", meta__b="b"
    )
    meta = {"origin": 3, "b": 4, "question": "no", "answer": "no"}
    assert s == Sample("q", "a", level="4", meta=meta)


def test_a_column_sent_to_meta_is_no_candidate_any_more() -> None:
    s = sample({"question": "q", "answer": "a", "gold": "b"}, meta__gold="gold")
    assert (s.answer, s.meta) == ("a", {"gold": "b"})


@pytest.mark.parametrize("key", ["qestion", "meta.", "meta"])
def test_a_mapping_to_no_role_is_a_config_error(key: str) -> None:
    with pytest.raises(ConfigError, match="not one of question, answer"):
        find_columns({"question": "q"}, {key: "question"})


def test_a_mapping_of_a_column_that_is_not_there_shows_those_that_are() -> None:
    with pytest.raises(ConfigError, match="no 'txt'") as caught:
        find_columns({"text": "", "id": ""}, {"question": "txt"})
    assert "'text', 'id'" in str(caught.value.hint)


@pytest.mark.parametrize("answer", [0, False, 0.5, "0", [1, "one", False], [""" x"""]])
def test_scalars_and_lists_of_them_are_answers_as_they_are(answer: object) -> None:
    found = sample({"question": "q", "answer": answer}).answer
    assert found == answer
    assert type(found) is type(answer)


@pytest.mark.parametrize("answer", [None, "", "  \n"])
def test_an_empty_answer_is_none(answer: object) -> None:
    assert sample({"question": "q", "answer": answer}).answer is None


@pytest.mark.parametrize("answer", [{}, {"value": 1}, [], [None], [[1]], [""], [{}]])
def test_other_answers_are_errors(answer: object) -> None:
    with pytest.raises(DataError, match="the answer is"):
        sample({"question": "q", "answer": answer})


@pytest.mark.parametrize("question", ["", " \t\n", None, 7, ["q"]])
def test_a_question_that_is_no_text_is_an_error(question: object) -> None:
    with pytest.raises(DataError, match="the question \\('question'\\) is"):
        sample({"question": question})


@pytest.mark.parametrize("question", ["{{ 7*7 }} {x} %s ${oc.env:HOME}", "  kept\r\n  as is\t "])
def test_the_text_of_a_question_is_never_touched(question: str) -> None:
    assert sample({"question": question}).question == question


def test_a_label_that_is_no_scalar_is_an_error_and_can_go_to_meta() -> None:
    with pytest.raises(DataError, match="the source \\('source'\\) is of type dict") as caught:
        sample({"question": "q", "source": {"a": 1}})
    assert "--map meta.source=source" in str(caught.value.hint)
    s = sample({"question": "q", "source": {"a": 1}}, meta__source="source")
    assert (s.source, s.meta) == ("", {"source": {"a": 1}})


def test_empty_labels_are_as_if_absent() -> None:
    assert sample({"question": "q", "source": None, "level": "", "cluster": ""}) == Sample("q")


def test_a_key_of_meta_that_comes_twice_is_an_error_not_a_loss() -> None:
    with pytest.raises(DataError, match="'id' twice"):
        sample({"question": "q", "meta": {"id": 1}, "id": 2})


def test_a_meta_that_is_no_object_is_kept_under_its_name() -> None:
    assert sample({"question": "q", "meta": "x"}).meta == {"meta": "x"}


def test_an_answer_of_another_form_than_the_first_is_an_error() -> None:
    for form, text in ((AFTER_HASHES, "18"), (PLAIN, "so\n#### 18"), (IN_BOX, "18")):
        fields = {"question": "q", "answer": text}
        layout = find_layout(fields, {})
        with pytest.raises(DataError, match=r"the answer is .* but in the first row it is"):
            to_sample(fields, layout, layout.parts(fields), form)
