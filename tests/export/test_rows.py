"""Rollouts as rows of a file: CSV without formulas, and exact JSON lines."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import example, given

from grpo_practice import Workspace
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import visible
from grpo_practice.export.rows import cell, json_line
from tests.reports.sample import HOSTILE
from tests.run.project import Project, restarted


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await restarted(tmp_path / "p")


async def test_a_run_that_played_nothing_writes_nothing(project: Project, tmp_path: Path) -> None:
    project.change("DELETE FROM rollout_bodies")
    for name in ("a.csv", "a.jsonl"):
        with pytest.raises(ConfigError, match="toy has no rollouts yet"):
            Workspace(project.db).export_rows("toy", tmp_path / name)
        assert not (tmp_path / name).exists()


async def test_csv_and_json_hold_the_same_rows(project: Project, tmp_path: Path) -> None:
    hostile = '=HYPERLINK("http://x.example")\n"a",b\x1b[2J\r\u202e'
    project.change("UPDATE samples SET question = ? WHERE sample_id = 3", hostile)
    project.change("UPDATE rollouts SET cost_micro = 1500000 WHERE step = 0")
    ws = Workspace(project.db)
    rows = [asdict(row) for row in ws.rows("toy")]
    assert ws.export_rows("toy", tmp_path / "a.jsonl").document()["rows"] == len(rows)
    assert ws.export_rows("toy", tmp_path / "a.csv").format == "csv"
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert any(row["question"] == hostile for row in rows)
    assert rows[0]["usd"] == 1.5
    with (tmp_path / "a.csv").open(newline="") as file:
        table = [*csv.DictReader(file)]
    assert [*table[0]] == [*rows[0]]
    assert len(table) == len(rows)
    shown = '\'=HYPERLINK("http://x.example")\n"a",b\\x1b[2J\\r\\u202e'
    for there, row in zip(table, rows, strict=True):
        assert there["question"] == (shown if row["question"] == hostile else row["question"])
        assert float(there["reward"]) == row["reward"]
        assert there["error"] == ""
    with pytest.raises(ConfigError, match="already exists"):
        ws.export_rows("toy", tmp_path / "a.csv")
    ws.export_rows("toy", tmp_path / "a.csv", format="jsonl", force=True)
    assert (tmp_path / "a.csv").read_text().splitlines() == lines


async def test_a_file_of_another_format_is_refused(project: Project, tmp_path: Path) -> None:
    ws = Workspace(project.db)
    with pytest.raises(ConfigError, match=r"a\.xlsx ends in \.xlsx, which"):
        ws.export_rows("toy", tmp_path / "a.xlsx")
    assert ws.export_rows("toy", tmp_path / "rows").format == "jsonl"


@pytest.mark.long
@given(HOSTILE)
@example("=1+1")
@example("\t=1")
@example(" \r\n-2+3")
@example("\uff1d1")
@example("@SUM(A1)")
@example("a;=1+1")
@example('a; "" =1+1')
@example("a\n=1|+1\t@1")
@example('";"=1')
def test_no_text_is_a_formula_or_a_second_row(text: str) -> None:
    made = cell(text)
    assert isinstance(made, str)
    assert made.lstrip()[:1] not in set("=+-@\uff1d\uff0b\uff0d\uff20")
    assert not made.startswith(("\t", "\r"))
    line = io.StringIO()
    csv.writer(line).writerow([made, made, 1])
    assert [*csv.reader(io.StringIO(line.getvalue(), newline=""))] == [[made, made, "1"]]
    for separator in ",;\t|":  # the spreadsheet's locale chooses it
        for row in csv.reader(io.StringIO(line.getvalue(), newline=""), delimiter=separator):
            for read in row:
                assert read.strip(' \t\r\n"')[:1] not in {*"=+-@\uff1d\uff0b\uff0d\uff20"}
    (exact,) = json_line({"text": text}).splitlines()
    assert json.loads(exact) == {"text": text}
    assert visible(exact) == exact


def test_a_long_text_of_separators_takes_linear_time() -> None:
    assert len(str(cell("\t" * 2_000_000))) == 2_000_001
