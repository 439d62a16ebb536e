"""Bytes from files and pipes, packed or not: all of them, or an error that says where."""

import gzip
import io
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data import text_lines
from grpo_practice.data.formats import FileSource, rows
from grpo_practice.data.read import read_samples
from grpo_practice.data.text_lines import Row

ROWS = b'{"q": 1}\n{"q": 2}\n'
Pipe = Callable[[bytes], None]


class Dripping(io.RawIOBase):
    """A pipe that gives a byte at a time."""

    def __init__(self, content: bytes) -> None:
        self._left = io.BytesIO(content)

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        got = self._left.read(1)
        buffer[: len(got)] = got
        return len(got)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    def put(content: bytes) -> None:
        raw: io.BufferedReader[Any] = io.BufferedReader(Dripping(content))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(raw))

    return put


def found(source: FileSource | Path) -> list[object]:
    return [row.fields["q"] if isinstance(row, Row) else str(row) for row in rows(source)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", ROWS),
        ("a.JSONL.GZ", b"\xef\xbb\xbf" + ROWS.replace(b"\n", b"\r\n")),
        ("a.json.gz", b'[{"q": 1}, {"q": 2}]'),
        ("a.csv.gz", b"\nq;b\n1;x\n2;y\n"),
        ("a.tsv.gz", b"q\tb\n1\tx, y\n2\tz\n"),
    ],
)
def test_every_text_format_may_be_packed(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content))
    assert list(map(str, found(path))) == ["1", "2"]


def test_a_file_packed_in_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"q": 1}\n{"q"') + gzip.compress(b": 2}\n"))
    assert found(path) == [1, 2]


def test_what_is_packed_is_seen_in_the_bytes(tmp_path: Path) -> None:
    packed, plain = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(ROWS))
    plain.write_bytes(ROWS)
    assert found(packed) == [1, 2]
    with pytest.raises(DataError, match=r"b\.jsonl\.gz is not a gzip file"):
        found(plain)


@pytest.mark.parametrize("keep", [12, -9, -4])
def test_a_packed_file_that_is_cut_off_is_refused_not_shortened(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(ROWS * 50)[:keep])
    with pytest.raises(DataError, match=r"a\.jsonl\.gz:\d+: the gzip file is cut off here"):
        read_samples(path, mapping={"question": "q"}, skip_bad=True)


@pytest.mark.parametrize("spoil", [20, -6])
def test_a_packed_file_with_a_wrong_byte_is_refused(tmp_path: Path, spoil: int) -> None:
    content = bytearray(gzip.compress(bytes(range(32, 127)) * 20))
    content[spoil] ^= 0xFF
    path = tmp_path / "a.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"the gzip file is (broken|cut off) here"):
        found(path)


def test_more_after_a_packed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(ROWS) + b"more")
    with pytest.raises(DataError, match=r"a\.jsonl\.gz:3: the gzip file is broken here"):
        found(path)


@pytest.mark.long
def test_a_bomb_of_many_lines_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "MAX_STREAM", 1 << 20)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b" \n" * 600_000))
    assert path.stat().st_size < 5_000
    with pytest.raises(
        DataError, match=r"a\.jsonl\.gz:524289: the unpacked text has more than .* lines"
    ):
        found(path)
    plain = tmp_path / "a.jsonl"
    plain.write_bytes(b" \n" * 600_000)  # its size is no surprise to anybody
    assert found(plain) == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
def test_a_bomb_of_blank_lines_is_stopped_by_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(text_lines, "MAX_LINES", 1_000)
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"\n" * 2_000))
    with pytest.raises(
        DataError, match=r"gz:1001: the unpacked text has more than .* or 1,000 lines"
    ):
        found(path)


@pytest.mark.long
def test_a_bomb_of_one_line_is_stopped_before_it_is_in_memory(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    path = tmp_path / "a.jsonl.gz"
    with path.open("wb") as file:
        for _ in range(300):  # 300 MB of blanks in 300 kB
            file.write(packer.compress(b" " * 1_000_000))
        file.write(packer.flush())
    code = (
        "import sys, tracemalloc; from pathlib import Path\n"
        "from grpo_practice.data.text_lines import lines\n"
        "import grpo_practice.data.text_lines as module\n"
        "module.MAX_LINE = 1 << 24\n"
        "tracemalloc.start()\n"
        "try: list(lines(Path(sys.argv[1])))\n"
        "except Exception as e: print(e)\n"
        "print(tracemalloc.get_traced_memory()[1] >> 20)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    said, megabytes = ran.stdout.splitlines()
    assert said.endswith("a.jsonl.gz:1: the line is longer than 16 MiB")
    assert int(megabytes) < 150


@pytest.mark.parametrize("packed", [False, True])
def test_stdin_is_read_however_slowly_it_comes_and_stays_open(pipe: Pipe, packed: bool) -> None:
    pipe(gzip.compress(ROWS) if packed else ROWS)
    assert found(FileSource(Path("-"), "jsonl")) == [1, 2]
    assert not sys.stdin.closed


def test_stdin_is_read_once_also_as_csv(pipe: Pipe) -> None:
    pipe(b"\nq\tb\n1\t2\n")
    assert found(FileSource(Path("-"), "csv")) == ["1"]


def test_errors_call_it_stdin(pipe: Pipe) -> None:
    pipe(ROWS + b"[]\n")
    assert found(FileSource(Path("-"), "jsonl"))[-1] == (
        "stdin:3: the row is a JSON list, not an object"
    )
    pipe(b"caf\xe9\n")
    with pytest.raises(DataError, match="stdin:1: byte 0xe9") as caught:
        found(FileSource(Path("-"), "jsonl"))
    assert caught.value.hint == "put `iconv -f LATIN1 -t UTF-8` before it in the pipe"


def test_a_pipe_without_an_end_is_stopped(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "MAX_STREAM", 1_000)
    pipe(b"\n" * 1_500)
    with pytest.raises(DataError, match=r"stdin:1001: the piped-in text has more than"):
        found(FileSource(Path("-"), "jsonl"))


def test_without_a_pipe_or_a_format_nothing_is_waited_for(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(ROWS)
    with pytest.raises(ConfigError, match="has no file name") as caught:
        found(Path("-"))
    assert "--format jsonl" in str(caught.value.hint)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(ConfigError, match="nothing is piped in"):
        found(FileSource(Path("-"), "jsonl"))


def test_the_format_may_be_said_and_must_be_known(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(ROWS)
    assert found(FileSource(path, "jsonl")) == [1, 2]
    with pytest.raises(
        ConfigError, match="--format xml is not one of jsonl, json, csv, tsv, parquet"
    ):
        found(FileSource(path, "xml"))
    with pytest.raises(DataError, match="parquet is read from a plain file only"):
        found(FileSource(Path("-"), "parquet"))


def test_a_tab_alone_divides_a_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b'q\tb\na, "b"; c\t"x\ty"\n')
    (row,) = rows(path)
    assert isinstance(row, Row)
    assert row.fields == {"q": 'a, "b"; c', "b": "x\ty"}
    with pytest.raises(ConfigError, match="delimiter is for CSV files only"):
        rows(FileSource(path, delimiter=";"))


def test_the_way_to_another_encoding_fits_what_the_file_is(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"q": "caf\xe9"}\n'))
    with pytest.raises(DataError, match="byte 0xe9") as caught:
        found(path)
    unpack = "gunzip -c a.jsonl.gz | iconv -f LATIN1 -t UTF-8 > utf8-a.jsonl"
    assert caught.value.hint == unpack
