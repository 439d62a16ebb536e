"""Options and passages beside a question: asked with it, and the answer is an option's letter."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Sample
from grpo_practice.data.choice_options import options_in
from grpo_practice.data.formats import FileSource
from grpo_practice.data.golds import SeveralRightError
from grpo_practice.data.read import read_samples

METALS, SIDES = ["Iron", "Mercury", "Zinc", "Gold"], ["4", "5", "6", "8"]
LIQUID, HEXAGON = "Which metal is liquid?", "How many sides has a hexagon?"
ASKED = f"{LIQUID}\n\nA. Iron\nB. Mercury\nC. Zinc\nD. Gold"
SHOWN = f"{HEXAGON}\n\nA. 4\nB. 5\nC. 6\nD. 8"


def table(path: Path, *rows: dict[str, Any]) -> Path:
    """Write a file as its suffix says; a CSV file has lists as pandas writes them."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder: Path, *rows: dict[str, Any], suffix: str = ".jsonl", **how: Any) -> list[Sample]:
    return read_samples(table(folder / f"rows{suffix}", *rows), **how).samples


def mmlu(question: str, choices: Any, answer: Any) -> dict[str, Any]:
    return {"question": question, "subject": "things", "choices": choices, "answer": answer}


def mmlu_pro(question: str, options: list[str], index: int) -> dict[str, Any]:
    return {"question_id": 7, "question": question, "options": options, "answer": "ABCD"[index],
            "answer_index": index, "cot_content": "", "category": "things", "src": "x"}  # fmt: skip


def arc(question: str, text: list[str], label: list[str], key: str) -> dict[str, Any]:
    return {"id": "x", "question": question, "choices": {"text": text, "label": label},
            "answerKey": key}  # fmt: skip


SETS = {
    "MMLU": (mmlu(LIQUID, METALS, 1), mmlu(HEXAGON, SIDES, 2)),
    "MMLU-Pro": (mmlu_pro(LIQUID, METALS, 1), mmlu_pro(HEXAGON, SIDES, 2)),
    "ARC": (arc(LIQUID, METALS, [*"ABCD"], "B"), arc(HEXAGON, SIDES, [*"1234"], "3")),
}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
@pytest.mark.parametrize("name", SETS)
def test_options_are_asked_and_the_answer_is_a_letter(
    tmp_path: Path, name: str, suffix: str
) -> None:
    samples = read(tmp_path, *SETS[name], suffix=suffix)
    assert [(s.question, s.answer) for s in samples] == [(ASKED, "B"), (SHOWN, "C")]
    assert [s.meta["options"] for s in samples] == [METALS, SIDES]


@pytest.mark.parametrize(
    "cell",
    [
        '["Iron", "Mercury", "Zinc", "Gold"]',
        "['Iron', 'Mercury', 'Zinc', 'Gold']",
        "{'text': ['Iron', 'Mercury', 'Zinc', 'Gold'], 'label': ['A', 'B', 'C', 'D']}",
        '{"A": "Iron", "B": "Mercury", "C": "Zinc", "D": "Gold", "E": null}',
        "['(A)Iron', '(B)Mercury', '(C) Zinc', '(D)Gold']",
    ],
)
def test_a_list_in_a_cell_is_read_whoever_wrote_it(cell: str) -> None:
    found = options_in(cell)
    assert found is not None
    assert list(found.texts) == METALS


@pytest.mark.parametrize(
    "cell",
    [
        "['Iron' 'Mercury'\n 'Zinc' 'Gold']",
        "['it''s', 'b']",
        "{'text': array(['a', 'b'], dtype=object), 'label': array(['A', 'B'], dtype=object)}",
    ],
)
def test_options_as_numpy_writes_them_are_refused_and_never_joined(
    tmp_path: Path, cell: str
) -> None:
    assert options_in(cell) is None
    with pytest.raises(DataError, match="not as NumPy does"):
        read(tmp_path, mmlu(LIQUID, METALS, 1) | {"choices": cell}, suffix=".csv")


@pytest.mark.parametrize(
    "value",
    ["red", ["one"], {"temperature": 1, "top_p": 2}, [["a"], ["b"]], 4, [], "['\\frac' 'b']",
     ["x"] * 27, "[" * 2_000],
)  # fmt: skip
def test_what_is_no_list_of_options_stays_what_it_is(value: Any) -> None:
    assert options_in(value) is None


def test_an_apostrophe_and_latex_survive_a_cell() -> None:
    texts = ["it's", 'a "b"', "$\\frac{1}{2}$", "c, d"]
    for cell in (repr(texts), json.dumps(texts)):
        found = options_in(cell)
        assert found is not None
        assert list(found.texts) == texts


@pytest.mark.parametrize(
    ("gold", "letter"),
    [("Mercury", "B"), ("mercury.", "B"), ("b", "B"), ("(B)", "B"), ("B. Mercury", "B"), (1, "B"),
     (1.0, "B"), ("1", "B"), ([1], "B"), ("['Mercury']", "B"), (None, None)],
)  # fmt: skip
def test_letter_index_and_text_are_the_letter(tmp_path: Path, gold: Any, letter: Any) -> None:
    rows = [mmlu(LIQUID, METALS, gold), mmlu("x?", ["p", "q"], None)]
    assert [s.answer for s in read(tmp_path, *rows)] == [letter, None]


def test_an_answer_of_two_meanings_is_settled_by_other_rows_or_by_the_person(
    tmp_path: Path,
) -> None:
    odd = mmlu("1 + 1?", ["3", "1", "2"], "1")  # the number 1, or the text 1?
    assert read(tmp_path, odd)[0].answer == "B"  # both mean B
    odd = mmlu("1 + 1?", ["3", "2", "1"], "2")
    with pytest.raises(ConfigError, match="'2' may mean option B or C") as e:
        read(tmp_path, odd)
    assert e.value.hint == (
        "choose how to read the answers: --gold index (option numbers from 0: here C),"
        " --gold number (option numbers from 1: here B) or --gold text (option texts:"
        " here B)"
    )
    assert read(tmp_path, odd, gold="text")[0].answer == "B"
    assert read(tmp_path, odd, gold="index")[0].answer == "C"
    assert read(tmp_path, odd, gold="number")[0].answer == "B"
    assert [s.answer for s in read(tmp_path, mmlu(LIQUID, METALS, "3"), odd)] == ["D", "C"]


def test_every_form_that_is_offered_for_an_answer_of_two_meanings_can_be_chosen(
    tmp_path: Path,
) -> None:
    rows = [mmlu("Which is even?", ["5", "2", "7", "9"], "2"), mmlu("Prime?", ["4", "6", "7"], "3")]
    with pytest.raises(ConfigError) as e:
        read(tmp_path, *rows)
    assert "--gold number" in str(e.value.hint)
    assert [s.answer for s in read(tmp_path, *rows, gold="number")] == ["B", "C"]
    rows.insert(0, mmlu("0 + 0?", ["0", "1", "2"], "0"))  # so none of them counts from 1
    with pytest.raises(ConfigError) as e:
        read(tmp_path, *rows)
    assert "--gold number" not in str(e.value.hint)


def test_a_number_is_no_text_of_an_option_unless_the_options_are_numbers(tmp_path: Path) -> None:
    assert read(tmp_path, mmlu("1 + 1?", ["3", "2", "1"], 2))[0].answer == "C"
    assert read(tmp_path, mmlu("1 + 1?", ["3", "2", "1"], 2), gold="text")[0].answer == "B"
    with pytest.raises(ConfigError, match="may mean option"):
        read(tmp_path, mmlu("1 + 1?", [3, 2, 1], 2))


def test_answers_that_count_from_1_are_not_taken_in_silence(tmp_path: Path) -> None:
    rows = [mmlu(LIQUID, METALS, 2), mmlu(HEXAGON, SIDES, 3)]
    notes = read_samples(table(tmp_path / "a.jsonl", *rows)).notes
    assert any("none of them is 0: if they count from 1, add --gold number" in n for n in notes)
    with pytest.raises(DataError, match=r"a.jsonl:3: the answer '4' is none of the 4") as e:
        read_samples(table(tmp_path / "a.jsonl", *rows, mmlu("x?", METALS, 4)))
    assert "--gold number" in str(e.value.hint)
    assert [s.answer for s in read(tmp_path, *rows, gold="number")] == ["B", "C"]


def test_an_answer_that_is_no_option_is_a_bad_row(tmp_path: Path) -> None:
    rows = [mmlu(LIQUID, METALS, "Mercury"), mmlu(HEXAGON, SIDES, "7")]
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the answer '7' is none of the 4 options"):
        read(tmp_path, *rows)
    assert len(read(tmp_path, *rows, skip_bad=True)) == 1


def test_an_option_that_looks_like_a_list_is_one_option(tmp_path: Path) -> None:
    intervals = ["[0, 1]", "[1, 2]", "(0, 1)"]
    assert read(tmp_path, mmlu("Where?", intervals, "[1, 2]"))[0].answer == "B"


def test_columns_of_one_option_each(tmp_path: Path) -> None:
    row = {"id": 1, "question": LIQUID, **dict(zip("ABCD", METALS, strict=True)), "answer": "B"}
    (sample,) = read(tmp_path, row)
    assert (sample.question, sample.answer) == (ASKED, "B")
    assert sample.meta == {"id": 1, "options": METALS}
    other = {"question": LIQUID, "opa": "Iron", "opb": "Mercury", "cop": 1}
    (sample,) = read(tmp_path, other, mapping={"options": "opa, opb", "answer": "cop"})
    assert (sample.question, sample.answer) == (f"{LIQUID}\n\nA. Iron\nB. Mercury", "B")


def test_options_that_the_question_has_already_are_not_asked_twice(tmp_path: Path) -> None:
    question = f"{LIQUID} Choices: (A)Iron (B)Mercury (C)Zinc (D)Gold"
    (sample,) = read(tmp_path, mmlu(question, [f"({c}){t}" for c, t in zip("ABCD", METALS)], [1]))  # noqa: B905
    assert (sample.question, sample.answer) == (question, "B")


def test_a_passage_that_the_question_has_already_is_not_asked_twice(tmp_path: Path) -> None:
    row = {"context": "It is red.", "question": "It is red. Is it?", "answer": "yes"}
    (sample,) = read(tmp_path, row)
    assert sample == Sample("It is red. Is it?", "yes", meta={"context": "It is red."})


def test_columns_that_are_no_options_are_kept_out(tmp_path: Path) -> None:
    row = {"question": "Sum of A and B?", "A": 3, "B": 4, "answer": 7}
    with pytest.raises(DataError, match="none of the 2 options") as e:
        read(tmp_path, row)
    assert "--map meta.NAME=COLUMN" in str(e.value.hint)
    (sample,) = read(tmp_path, row, mapping={"meta.A": "A"})
    assert sample == Sample("Sum of A and B?", 7, meta={"A": 3, "B": 4})


def test_the_template_and_what_is_left_out_are_said(tmp_path: Path) -> None:
    notes = read_samples(table(tmp_path / "a.jsonl", *SETS["MMLU-Pro"])).notes
    assert notes[1:] == [
        "the agent is asked '{question}\\n\\n{options}', where options is 'options'"
        " (to change it: --template)",
        "the answers in 'answer' are option letters",
        "kept in meta, not shown to agents: 'question_id', 'answer_index', 'cot_content', "
        "'category', 'src'",
    ]


def test_a_template_of_the_users(tmp_path: Path) -> None:
    def asked(template: str) -> str:
        return read(tmp_path, SETS["MMLU"][0], template=template)[0].question

    assert asked("{question}") == LIQUID
    assert asked("On {subject}: {question}\n{options}\n\nOne letter.") == (
        f"On things: {LIQUID}\nA. Iron\nB. Mercury\nC. Zinc\nD. Gold\n\nOne letter."
    )
    assert asked("{choices.1} {{x}} {question}") == f"Mercury {{x}} {LIQUID}"
    for template, problem in (
        ("{quest}", "{quest} is neither a slot nor a column"),
        ("{question", "--template: expected '}'"),
        ("{question!r}", "neither a slot"),
        ("Which?", "has no slot"),
        ("{question} {answer}", "{answer} is the answer, which would be given away"),
    ):
        with pytest.raises(ConfigError) as e:
            asked(template)
        assert problem in str(e.value)


def test_a_template_may_make_the_question(tmp_path: Path) -> None:
    row = {"premise": "It rains.", "hypothesis": "It is wet.", "label": 0}
    (sample,) = read(tmp_path, row, template="{premise}\n\nDoes this follow: {hypothesis}")
    assert sample == Sample("It rains.\n\nDoes this follow: It is wet.", 0)


BESIDE: dict[str, tuple[dict[str, Any], str]] = {
    "svamp": (
        {"ID": "c", "Body": "Mia has 7 pears.", "Question": "How many?", "Answer": 7.0},
        "Mia has 7 pears.\n\nHow many?",
    ),
    "asdiv": (
        {"body": "Mia has 7 pears.", "question": "How many?", "answer": "7 (pears)"},
        "Mia has 7 pears.\n\nHow many?",
    ),
    "boolq": (
        {"question": "is it red", "passage": "It is red.", "answer": True},
        "It is red.\n\nis it red",
    ),
    "lsat": (
        {"passage": "Two boats.", "question": "Which?", "options": ["(A)red", "(B)blue"],
         "label": "B"},
        "Two boats.\n\nWhich?\n\nA. red\nB. blue",
    ),
    "paragraphs": (
        {"context": ["One.", "Two."], "question": "Which?", "answer": "x"},
        "One.\n\nTwo.\n\nWhich?",
    ),
    "evals": (
        {"input": [{"role": "system", "content": "One word."},
                   {"role": "user", "content": "Capital?"}], "ideal": "Rome"},
        "One word.\n\nCapital?",
    ),
    "evals, in a column": (
        {"system": "One word.", "input": "Capital?", "ideal": "Rome"},
        "One word.\n\nCapital?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_a_question_is_asked_with_it(tmp_path: Path, name: str) -> None:
    row, question = BESIDE[name]
    (sample,) = read(tmp_path, row)
    assert sample.question == question
    assert set(sample.meta) <= {"ID", "options"}


def test_an_empty_passage_leaves_no_gap(tmp_path: Path) -> None:
    rows = [{"passage": p, "question": "q", "answer": "1"} for p in (None, "", "Read.")]
    assert [s.question for s in read(tmp_path, *rows)] == ["q", "q", "Read.\n\nq"]


def test_a_file_without_such_columns_has_the_samples_that_it_had(tmp_path: Path) -> None:
    rows = [
        {"question": "q {x} ", "answer": ["a", "b"], "context": {"k": 1}, "options": {"top_p": 1}},
        {"question": "r", "answer": "[0, 1]", "context": {}, "options": {}},
    ]
    assert read(tmp_path, *rows) == [
        Sample("q {x} ", ["a", "b"], meta={"context": {"k": 1}, "options": {"top_p": 1}}),
        Sample("r", "[0, 1]", meta={"context": {}, "options": {}}),
    ]
    chat = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}],
            "context": "c", "answer": "1"}  # fmt: skip
    assert read(tmp_path, chat) == [Sample("q", "1", meta={"context": "c", "system": "S"})]


SEVERAL = [mmlu("Prime?", ["2", "4", "5", "6"], [0, 2]), mmlu("Even?", ["1", "2", "3", "5"], [1])]


@pytest.mark.parametrize(
    "row",
    [
        SEVERAL[0],
        mmlu("Prime?", ["2", "4", "5", "6"], ["A", "C"]),
        mmlu("Prime?", ["2", "4", "5", "6"], "AC"),
        mmlu("Prime?", ["2", "4", "5", "6"], "A, C"),
        mmlu("Prime?", ["2", "4", "5", "6"], "['A', 'C']"),
        {"question": "A. 2 B. 4 C. 5: which are prime?", "answer": ["A", "C"]},
    ],
)
def test_several_right_options_are_asked_about_and_kept_as_said(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    with pytest.raises(SeveralRightError, match="names several options") as e:
        read(tmp_path, row, skip_bad=True)
    assert "--select any" in str(e.value.hint)
    assert "--select all" in str(e.value.hint)
    assert read(tmp_path, row, select="any")[0].answer == ["A", "C"]
    (sample,) = read(tmp_path, row, select="all")
    assert (sample.answer, sample.meta["select"]) == ("A, C", "all")


def test_every_row_of_a_select_all_file_says_so(tmp_path: Path) -> None:
    samples = read(tmp_path, *reversed(SEVERAL), select="all")
    assert [(s.answer, s.meta["select"]) for s in samples] == [("B", "all"), ("A, C", "all")]


def test_alternatives_that_are_no_letters_are_not_asked_about(tmp_path: Path) -> None:
    assert read(tmp_path, {"question": "q", "answer": ["four", "4"]})[0].answer == ["four", "4"]
    unchanged = {"question": "q", "answer": ["A", "C"]}
    assert read(tmp_path, unchanged, select="any") == [Sample("q", ["A", "C"])]


def test_a_path_goes_into_lists_and_packed_cells(tmp_path: Path) -> None:
    row = {"turns": ["Name a river.", "And another."], "instances": [{"output": "Oder"}]}
    mapping = {"question": "turns.0", "answer": "instances.0.output", "meta.next": "turns.1"}
    for suffix in (".jsonl", ".csv"):
        (sample,) = read(tmp_path, row, suffix=suffix, mapping=mapping)
        assert (sample.question, sample.answer) == ("Name a river.", "Oder")
        assert sample.meta["next"] == "And another."
    for column in ("turns.2", "turns.x", "turns.-1", "instances.0.input", "turns.0.0"):
        with pytest.raises(ConfigError, match="the first row has no"):
            read(tmp_path, row, mapping=mapping | {"level": column})


def test_a_first_line_that_is_a_row_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("Which metal is liquid?,Iron,Mercury,Zinc,Silver,B\n2 + 2 is,3,4,5,6,B\n")
    with pytest.raises(DataError, match="the header looks like a row") as e:
        read_samples(path)
    assert "--columns question,A,B,C,D,answer" in str(e.value.hint)
    columns = ("question", "A", "B", "C", "D", "answer")
    found = read_samples(FileSource(path, columns=columns)).samples
    assert [s.question.partition("\n")[0] for s in found] == ["Which metal is liquid?", "2 + 2 is"]
    mapped = read_samples(path, mapping={"question": "Which metal is liquid?", "answer": "B"})
    assert any("read as column names; if it is a row: --columns" in n for n in mapped.notes)
    path.write_text("2 + 2 is,4,4,5,6,B\n")
    with pytest.raises(DataError, match="'4' appears twice") as e:
        read_samples(path)
    assert "--columns question,A,B,C,D,answer" in str(e.value.hint)
    with pytest.raises(DataError, match="6 fields, but --columns names 2"):
        read_samples(FileSource(path, columns=("question", "answer")))
    path.with_suffix(".json").write_text("[]")
    with pytest.raises(ConfigError, match="--columns is for CSV"):
        read_samples(FileSource(path.with_suffix(".json"), columns=("question", "answer")))
