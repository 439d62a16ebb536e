from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.text import DATA_SUFFIXES
from grpo_practice.data.cells import first_repeated
from grpo_practice.data.formats import SUFFIXES, FileSource, rows
from grpo_practice.data.text_lines import Row

Put = Callable[[str, bytes], Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def places(path: Path) -> list[tuple[str, object]]:
    return [(r.place, r.fields["q"]) if isinstance(r, Row) else ("bad", str(r)) for r in rows(path)]


def refused(path: Path, delimiter: str | None = None) -> DataError:
    with pytest.raises(DataError) as caught:
        for row in rows(FileSource(path, delimiter=delimiter)):
            assert isinstance(row, Row), row
    return caught.value


def only_error(path: Path) -> str:
    (error,) = [r for r in rows(path) if isinstance(r, DataError)]
    return str(error)


def test_jsonl_copes_with_bom_crlf_and_blank_lines_and_counts_them(put: Put) -> None:
    path = put(
        "a.jsonl", b'\xef\xbb\xbf{"q": 1}\r\n\r\n  \n{"q": "\xc3\xa9\xe2\x80\xa8x"}\r\n{"q": 3}'
    )
    assert places(path) == [("1", 1), ("4", "é\u2028x"), ("5", 3)]


def test_a_broken_jsonl_line_is_named_and_the_next_ones_are_read(put: Put) -> None:
    found = places(put("a.jsonl", b'{"q": 1}\n{"q": \n[2]\n{"q": 4} x\n{"q": 5}\n'))
    assert [place for place, _ in found] == ["1", "bad", "bad", "bad", "5"]
    messages = [str(m) for place, m in found if place == "bad"]
    assert "a.jsonl:2: not valid JSON: Expecting value" in messages[0]
    assert "cut off" not in messages[0]
    assert "a.jsonl:3: the row is a JSON list, not an object" in messages[1]
    assert "a.jsonl:4: not valid JSON: Extra data at column 10" in messages[2]


def test_a_truncated_last_line_is_called_so(put: Put) -> None:
    message = only_error(put("a.jsonl", b'{"q": 1}\n{"q": "so'))
    assert "a.jsonl:2:" in message
    assert "cut off" in message


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "9" * 5000, "[" * 100_000])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_what_json_cannot_hold_is_an_error_with_its_line(put: Put, name: str, value: str) -> None:
    row = '{"q": ' + value + "}"
    if name == "a.jsonl":
        message = only_error(put(name, f'{{"q": 1}}\n{row}\n'.encode()))
    else:
        message = str(refused(put(name, f'[{{"q": 1}},\n{row}]\n'.encode())))
    assert f"{name}:2: not " in message


def test_a_key_twice_in_one_object_is_an_error(put: Put) -> None:
    assert "'q' appears twice" in only_error(put("a.jsonl", b'{"q": 1, "b": 2, "q": 3}\n'))


def test_a_json_list_gives_the_line_and_number_of_each_row(put: Put) -> None:
    pretty = put("a.json", b'\xef\xbb\xbf\n[\n  {\n "q": 1},\r\n  {"q": 2}, {"q": 3}\n]\n')
    assert places(pretty) == [("3 (row 1)", 1), ("5 (row 2)", 2), ("5 (row 3)", 3)]
    assert places(put("empty.json", b"[ ]")) == []


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{"q": 1}\n{"q": 2}\n', 1),  # JSON lines under the wrong name
        (b'[{"q": 1},\n{"q": 2}', 2),  # cut off
        (b'[{"q": 1}\n{"q": 2}]', 2),  # no comma
        (b'[{"q": 1},\n]', 2),
        (b'[{"q": 1}]\n[]', 2),
        (b'[{"q": 1},\n{"q": }]', 2),
        (b"", 1),
    ],
)
def test_a_json_file_that_is_no_list_is_refused_with_the_line(
    put: Put, content: bytes, line: int
) -> None:
    error = refused(put("a.json", content))
    assert f"a.json:{line}: not one JSON list" in str(error)
    assert ".jsonl" in str(error.hint)


def test_csv_rows_begin_where_their_first_line_is(put: Put) -> None:
    path = put("a.csv", b'\xef\xbb\xbfq,b\r\n"one,\r\n1",x\r\n\r\n"say ""hi""",007\r\n')
    assert places(path) == [("2", "one,\r\n1"), ("5", 'say "hi"')]
    last = list(rows(path))[-1]
    assert isinstance(last, Row)
    assert last.fields["b"] == "007"


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        (b"q;b\n1,5;x\n", None),
        (b"q\tb\n1,5\tx\n", None),
        (b"q|b\n1,5|x\n", "|"),
        (b"q, or;b\tc\n1,5\tx\n", "\\t"),
    ],
)
def test_the_delimiter_is_seen_in_the_first_line_or_given(
    put: Put, content: bytes, delimiter: str | None
) -> None:
    (row,) = rows(FileSource(put("a.csv", content), delimiter=delimiter))
    assert isinstance(row, Row)
    assert list(row.fields.values()) == ["1,5", "x"]


def test_a_ragged_csv_row_is_named_and_the_next_ones_are_read(put: Put) -> None:
    found = places(put("a.csv", b'q,b\n1\n1,2,3\n"a" b,2\n5,6\n'))
    assert [place for place, _ in found] == ["bad", "bad", "bad", "5"]
    assert "a.csv:2: 1 fields, but the header has 2" in str(found[0][1])
    assert "a.csv:3: 3 fields" in str(found[1][1])
    assert "a.csv:4: not valid CSV" in str(found[2][1])


def test_a_quote_never_closed_refuses_the_file_because_it_hides_the_rows_after(put: Put) -> None:
    error = refused(put("a.csv", b'q,b\n1,2\n"3,4\n5,6\n7,8\n'))
    assert "a.csv:3: not valid CSV" in str(error)
    assert "unclosed" in str(error.hint)


def test_a_csv_header_with_a_name_twice_is_refused(put: Put) -> None:
    assert "a.csv:2: the column 'q' appears twice" in str(refused(put("a.csv", b"\nq, q\n1,2\n")))


def test_many_columns_are_not_compared_with_each_other() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        @override
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == other

    names = [Name(f"c{n}") for n in range(1_000)]
    assert first_repeated(names) is None
    assert first_repeated([*names, Name("c999")]) == "c999"
    assert compared < 10_000


def test_a_csv_column_without_a_name_keeps_its_values(put: Put) -> None:
    (row,) = rows(put("a.csv", b",q\n0,x\n"))
    assert isinstance(row, Row)
    assert row.fields == {"column 1": "0", "q": "x"}


def test_a_csv_field_may_be_longer_than_the_standard_limit(put: Put) -> None:
    (row,) = rows(put("a.csv", b"q\n" + b"x" * 200_000))
    assert isinstance(row, Row)
    assert len(row.fields["q"]) == 200_000


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_another_encoding_is_named_with_its_line_and_the_way_out(put: Put, name: str) -> None:
    latin = refused(
        put(name, b'[{"q":\n "caf\xe9"}]' if name == "a.json" else b'{"q":1}\n"caf\xe9"')
    )
    assert f"{name}:2: byte 0xe9 is not UTF-8; the file may be Latin-1" in str(latin)
    assert "iconv -f LATIN1" in str(latin.hint)
    wide = refused(put(name, '[{"q": 1}]'.encode("utf-16")))
    assert f"{name}:1: the file is UTF-16" in str(wide)
    unmarked = refused(put(name, '[{"q": 1}]'.encode("utf-16-le")))
    assert f"{name}:1: a NUL byte" in str(unmarked)


@pytest.mark.parametrize("name", ["a.pkl", "a.pt", "a.PICKLE", "a.py"])
def test_what_may_run_code_is_never_read(put: Put, name: str) -> None:
    error = refused(put(name, b"cos\nsystem\n(S'exit 1'\ntR."))
    assert "may run code" in str(error)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "rows", ".gz"])
def test_another_format_is_refused_with_what_is_read(put: Put, name: str) -> None:
    assert ".jsonl" in str(refused(put(name, b'{"q": 1}')).hint)


@pytest.mark.parametrize("name", ["none.jsonl", "none.json", "none.csv"])
def test_a_missing_file_is_a_data_error(tmp_path: Path, name: str) -> None:
    assert "cannot read" in str(refused(tmp_path / name))


@pytest.mark.parametrize(("name", "given"), [("a.jsonl", ";"), ("a.csv", ";;"), ("a.csv", "\n")])
def test_a_delimiter_that_cannot_be_is_a_config_error(put: Put, name: str, given: str) -> None:
    with pytest.raises(ConfigError, match="delimiter"):
        list(rows(FileSource(put(name, b"q;b\n1;2\n"), delimiter=given)))


def test_a_config_may_name_a_file_of_every_format() -> None:
    assert set(DATA_SUFFIXES) == {*SUFFIXES, ".gz"}
