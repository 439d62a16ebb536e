"""Parquet: what has no JSON form is text, an error or left out, and nothing is ever run."""

import datetime as dt
import io
import sys
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data import parquet, parquet_pages
from grpo_practice.data.read import read_samples
from grpo_practice.data.text_lines import Row
from tests.late import Late

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = Late("pyarrow")
    pq = Late("pyarrow.parquet")


def write(folder: Path, columns: dict[str, Any], **how: Any) -> Path:
    path = folder / "rows.parquet"
    pq.write_table(pa.table(columns), path, **how)
    return path


def fields(path: Path, **how: Any) -> list[dict[str, Any]]:
    found = list(parquet.rows(path, **how))
    assert all(isinstance(row, Row) for row in found), found
    return [row.fields for row in found if isinstance(row, Row)]


def test_2_19_values_are_those_that_json_has(tmp_path: Path) -> None:
    day = dt.datetime(2024, 2, 29, 12, 30, 1, 5)  # noqa: DTZ001 - columns of both kinds are made of it
    stamps = pa.array([1_709_209_801_000_005_007, None], pa.timestamp("ns"))
    columns = {
        "text": pa.array(["a", None], pa.large_string()),
        "number": pa.array([2**64 - 1, None], pa.uint64()),
        "half": pa.array([0.5, None], pa.float16()),
        "money": [Decimal("1.10"), None],
        "day": [day.date(), None],
        "stamp": stamps,
        "here": stamps.cast(pa.timestamp("ns", "UTC")),
        "clock": pa.array([1_500, None], pa.time32("ms")),
        "long": pa.array([61_000, None], pa.duration("ms")),
        "word": pa.array(["x", None]).dictionary_encode(),
        "map": pa.array([[("k", [1.5])], None], pa.map_(pa.string(), pa.list_(pa.float64()))),
        "nested": [{"list": [{"when": day}], "none": None}, None],
        "fixed": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        "a.b": [True, None],
    }
    first, second = fields(write(tmp_path, columns))
    assert first == {
        "text": "a",
        "number": 2**64 - 1,
        "half": 0.5,
        "money": "1.10",
        "day": "2024-02-29",
        "stamp": "2024-02-29T12:30:01.000005",
        "here": "2024-02-29T12:30:01.000005+00:00",
        "clock": "00:00:01.500000",
        "long": "0:01:01",
        "word": "x",
        "map": {"k": [1.5]},
        "nested": {"list": [{"when": "2024-02-29T12:30:01.000005"}], "none": None},
        "fixed": [1, 2],
        "a.b": True,
    }
    assert second == dict.fromkeys(columns)
    assert type(first["half"]) is float
    assert fields(tmp_path / "rows.parquet", columns=["a.b", "gone"]) == [
        {"a.b": True},
        {"a.b": None},
    ]


def test_2_19_bytes_and_foreign_types_are_left_out_and_named(tmp_path: Path) -> None:
    foreign = pa.field("foreign", pa.string(), metadata={"ARROW:extension:name": "evil.pickle"})
    schema = pa.schema(
        [
            pa.field("question", pa.string()),
            pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            pa.field("many", pa.list_(pa.large_binary())),
            foreign,
            pa.field("id", pa.uuid()),
        ]
    )
    row = {"question": "q", "image": {"bytes": b"x"}, "many": [b"x"], "foreign": "x"}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([row | {"id": b"0" * 16}], schema), path)
    assert fields(path) == [{"question": "q"}]
    assert parquet.left_out(path) == [
        "'image' (binary)",
        "'many' (binary)",
        "'foreign' (of an extension type)",
        "'id' (of an extension type)",
    ]
    path = write(tmp_path, {"Question": [b"q"], "answer": ["a"]})
    with pytest.raises(DataError, match="the column 'Question' is binary, not text or numbers"):
        list(parquet.rows(path))


def test_a_value_that_json_has_not_spoils_its_row_alone(tmp_path: Path) -> None:
    texts = pa.StringArray.from_buffers(
        3, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")
    )
    pairs = pa.array([[], [], [("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8()))
    path = write(tmp_path, {"question": texts, "x": [float("nan"), 1.0, 2.0], "map": pairs})
    found = list(parquet.rows(path))
    assert [str(error).partition("parquet:")[2][:40] for error in found] == [
        "row 1: 'x': nan is not a JSON number",
        "row 2: a value cannot be read: 'utf-8' c",
        "row 3: 'map': a map contains the same ke",
    ]
    far = pa.array([2**62, 0], pa.timestamp("us"))  # a year that Python has not
    bad, good = parquet.rows(write(tmp_path, {"when": far}))
    assert isinstance(bad, DataError)
    assert good == Row("row 2", {"when": "1970-01-01T00:00:00"})


def test_rows_come_before_the_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": [f"q{i}" * 50 for i in range(4_000)]}, row_group_size=1_000)
    body = bytearray(path.read_bytes())
    last = pq.ParquetFile(path).metadata.row_group(3).column(0)
    begin = last.dictionary_page_offset or last.data_page_offset
    body[begin : begin + last.total_compressed_size] = b"\xff" * last.total_compressed_size
    path.write_bytes(body)
    found = parquet.rows(path)
    assert len(list(islice(found, 2_000))) == 2_000
    with pytest.raises(DataError, match="not a readable parquet file"):
        list(found)


def test_a_small_file_of_endless_equal_rows_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, {"question": ["x" * 1_000] * 10_000})
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(parquet, "MAX_BYTES", 1_000_000)
    with pytest.raises(DataError, match="more than 0 GiB"):
        list(parquet.rows(path))


def repeated(folder: Path, value: str, times: int, **how: Any) -> Path:
    """Write a file of equal rows: the value is in it once, and hardly takes any room."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([value]))
    how = {"compression": "zstd", "dictionary_pagesize_limit": 2**30, **how}
    path = write(folder, {"question.text": column}, write_statistics=False, **how)
    assert path.stat().st_size < 20_000
    return path


@pytest.mark.parametrize("store_schema", [True, False])
def test_a_dictionary_counts_as_often_as_it_is_used(tmp_path: Path, store_schema: bool) -> None:
    path = repeated(tmp_path, "x" * 2**20, 300, store_schema=store_schema)
    read = 0
    with pytest.raises(DataError, match=r"unpacks to more than 64 MiB, .* times its size"):
        for row in parquet.rows(path):
            assert isinstance(row, Row)
            read += len(row.fields["question.text"])
    assert 32 * 2**20 < read <= parquet.SMALL


@pytest.mark.long
def test_a_dictionary_in_lists_and_structs_is_read_and_counts(tmp_path: Path) -> None:
    words = pa.array(["x" * 2**20, None]).dictionary_encode()
    nested = pa.StructArray.from_arrays([words], ["word"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2]), words)
    path = write(tmp_path, {"nested": nested, "lists": lists}, compression="zstd")
    word = "x" * 2**20
    assert fields(path) == [
        {"nested": {"word": word}, "lists": [word, None]},
        {"nested": {"word": None}, "lists": []},
    ]
    many = pa.ListArray.from_arrays(pa.array([0, 300]), words.take(pa.array([0] * 300)))
    with pytest.raises(DataError, match="unpacks to more than 64 MiB"):
        list(parquet.rows(write(tmp_path, {"lists": many}, compression="zstd")))


def test_a_small_file_of_millions_of_rows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = repeated(tmp_path, "1 + 1?", 5_000_000)
    with pytest.raises(DataError, match=r"5,000,000 rows, which take .* times its size"):
        next(parquet.rows(path))


def as_varint(number: int) -> bytes:
    """Return the number as the footer has it."""
    number, out = number * 2, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


@pytest.mark.long
@pytest.mark.parametrize("honest", [True, False])
def test_one_large_value_is_not_unpacked_for_many_rows_at_once(
    tmp_path: Path, honest: bool
) -> None:
    path = repeated(tmp_path, "x" * (50 * 2**20), 64, store_schema=False)
    if not honest:
        lie_about_size(path)
    assert peak_of_refused(path) < 3 * parquet.BATCH_BYTES


def lie_about_size(path: Path) -> None:
    """Write into the footer that the first column takes 4 MiB."""
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    body, claimed = path.read_bytes(), as_varint(chunk.total_uncompressed_size)
    assert body.count(claimed) == 2  # of the column, and of the row group
    path.write_bytes(body.replace(claimed, as_varint(2**22)))


def peak_of_refused(path: Path, why: str = "unpacks to more than 64 MiB") -> int:
    """The most bytes that pyarrow had while it read a file that is refused."""
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(DataError, match=why):
            list(parquet.rows(path))
    finally:
        pa.set_memory_pool(before)
    return pool.max_memory() or 0


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_plain_page_is_believed_by_its_own_header_and_not_by_the_footer(
    tmp_path: Path, version: Any
) -> None:
    how = {"use_dictionary": False, "compression": "zstd", "data_page_version": version}
    path = write(tmp_path, {"question": ["q", "x" * (120 * 2**20)]}, **how)
    assert path.stat().st_size < 100_000
    lie_about_size(path)
    assert peak_of_refused(path) < 2**20


def test_one_page_has_a_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_PAGE", 2**20)
    path = write(tmp_path, {"question": ["x" * 2**21]}, use_dictionary=False)
    assert peak_of_refused(path, "a page of more than 1 MiB") < 2**20


def test_pages_without_number_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(
        tmp_path,
        {"question": [f"{n:0100}" for n in range(10_000)]},
        use_dictionary=False,
        data_page_size=1_000,
        write_batch_size=10,
    )
    assert len(fields(path)) == 10_000
    monkeypatch.setattr(parquet_pages, "MAX_PAGES", 100)
    with pytest.raises(DataError, match="more than 100 pages in one column"):
        list(parquet.rows(path))


@pytest.mark.parametrize("cut", [0, 3, 100, -1, -20])
def test_a_file_that_is_none_or_cut_off_is_an_error(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, {"question": ["q"] * 50})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"rows\.parquet is not a readable parquet file"):
        list(parquet.rows(path))


def test_no_regular_file_no_columns_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*gone\.parquet: No such file"):
        list(parquet.rows(tmp_path / "gone.parquet"))
    with pytest.raises(DataError, match="is not a regular file"):
        list(parquet.rows(tmp_path))
    buffer = io.BytesIO()
    twice = pa.Table.from_arrays([pa.array(["q"]), pa.array(["r"])], names=["question", "question"])
    pq.write_table(twice, buffer)
    (tmp_path / "twice.parquet").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="the column 'question' appears twice"):
        list(parquet.rows(tmp_path / "twice.parquet"))


def test_2_19_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, {"question": ["q"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError) as raised:
        read_samples(path)
    assert raised.value.hint == "pip install 'grpo-practice[parquet]'"


def test_a_parquet_file_is_a_dataset(tmp_path: Path) -> None:
    path = write(tmp_path, {"problem": ["1+1?", "1+1?"], "answer": ["2", "3"], "year": [1, 2]})
    found = read_samples(path)
    assert [(s.question, s.answer, s.meta) for s in found.samples] == [
        ("1+1?", "2", {"year": 1}),
        ("1+1?", "3", {"year": 2}),
    ]
    assert "row 2 repeats the question of row 1 with another answer" in found.notes[-1]
