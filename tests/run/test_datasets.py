"""`workspace.datasets`: rows from Python, and the checks that come before anything is stored."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.text import visible
from grpo_practice.core.types import Sample


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w.db")


def test_samples_are_stored_as_they_are(workspace: Workspace) -> None:
    samples = [Sample("1 + 1?", "2", meta={"deep": [{"a": 1}]}), Sample("Why?", None, level="hard")]
    stored = workspace.datasets.upload("d", samples)
    assert (stored.new, stored.dataset.n, stored.dataset.origin) == (True, 2, "Python")
    assert (stored.verify, list(stored.unusable), stored.next_verify) == ("math", [2], "judge")
    shown = workspace.datasets.show("d")
    assert list(shown.rows) == samples
    assert shown.document()["rows"][0]["meta"] == {"deep": [{"a": 1}]}
    assert not workspace.datasets.upload("d", samples).new


def test_mappings_are_read_as_the_rows_of_a_file(workspace: Workspace) -> None:
    rows = [{"problem": "1 + 1?", "gold": 2}, {"problem": "2 + 1?", "gold": 3}]
    mapping = {"question": "problem", "answer": "gold"}
    assert workspace.datasets.upload("d", rows, mapping=mapping).dataset.n == 2
    assert [s.answer for s in workspace.datasets.show("d").rows] == [2, 3]


def test_the_first_of_equal_questions_is_kept_in_its_place(workspace: Workspace) -> None:
    samples = [Sample("a?", "1"), Sample("b?", "2"), Sample(" a?", "3"), Sample("c?", "4")]
    stored = workspace.datasets.upload("d", samples, dedup=True)
    assert [s.answer for s in workspace.datasets.show("d").rows] == ["1", "2", "4"]
    assert stored.notes == ["1 with the question of an earlier one left out"]


def test_other_rows_under_a_name_are_refused_replaced_or_joined(workspace: Workspace) -> None:
    one, two = [Sample("a?", "1")], [Sample("b?", "2")]
    workspace.datasets.upload("d", one)
    with pytest.raises(DataError, match="already exists"):
        workspace.datasets.upload("d", two)
    assert workspace.datasets.upload("d", two, if_exists="append").dataset.n == 2
    assert workspace.datasets.upload("d", one, if_exists="replace").dataset.n == 1
    assert [(d.name, d.revision) for d in workspace.datasets.list().datasets] == [("d", 3)]


@pytest.mark.parametrize(
    ("name", "rows", "more", "error"),
    [
        ("a/b", [Sample("a?", "1")], {}, ConfigError),
        ("d", [Sample("a?", "1")], {"verify": "nope"}, ConfigError),
        ("d", [Sample("a?")], {}, DataError),
        ("d", [], {}, DataError),
        ("d", [{"x": 1}], {}, DataError),
    ],
)
def test_what_is_refused_makes_no_database(
    workspace: Workspace, name: str, rows: Any, more: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        workspace.datasets.upload(name, rows, **more)
    assert not workspace.path.exists()


def test_a_split_takes_shares_as_a_mapping(workspace: Workspace) -> None:
    workspace.datasets.upload("d", [Sample(f"{n}?", str(n)) for n in range(10)])
    divided = workspace.datasets.split("d", {"a": 0.5, "b": 0.5})
    assert [(p.dataset.name, p.dataset.n, p.share) for p in divided.parts] == [
        ("d-a", 5, 0.5),
        ("d-b", 5, 0.5),
    ]
    for shares in ({"a": 0.5, "b": 0.6}, {"a": 1.0}, {}, {"a": 0.5, "": 0.5}):
        with pytest.raises(ConfigError, match="--into"):
            workspace.datasets.split("d", shares)


def test_reports_show_themselves(workspace: Workspace) -> None:
    stored = workspace.datasets.upload("d", [("1 + 1?", "2"), ("2 + 2?", "4")])
    assert repr(stored).splitlines()[0] == "d holds 2 rows"
    assert "2 rows  revision 1" in repr(workspace.datasets.list())
    assert "1 + 1?  2" in repr(workspace.datasets.show("d", rows=1))


ODD = [
    Sample("1 + 1?", "2", meta={"deep": [{"a": 1}], "meta": {"answer": 3}, "question": "q"}),
    Sample("Why?\n\u2028 \x85 \\boxed{\U0001f600}", None, level="hard", cluster="7"),
    Sample("1 + 1?", ["2", 2, 2.5, True], source="s"),
    Sample("Which?\n(A) 1\n(B) 2", "B", meta={"choices": ["1", "2"], "answer": 1, "x": None}),
]


def test_an_exported_dataset_is_read_as_the_same_dataset(
    workspace: Workspace, tmp_path: Path
) -> None:
    sha = workspace.datasets.upload("d", ODD).dataset.sha256
    file = tmp_path / "d.jsonl"
    written = workspace.datasets.export("d", file)
    assert (written.dataset.n, written.answered, written.changed) == (4, True, 0)
    assert "".join(workspace.datasets.lines("d")) == file.read_text("utf-8")
    again = Workspace(tmp_path / "other.db").datasets.upload("e", file)
    assert again.dataset.sha256 == sha
    assert not workspace.datasets.upload("d", file).new


def test_the_next_command_of_an_export_says_what_several_options_mean(
    workspace: Workspace, tmp_path: Path
) -> None:
    rows = [Sample("Which?", ["A", "C"]), Sample("And which?", "B")]
    sha = workspace.datasets.upload("d", rows).dataset.sha256
    written = workspace.datasets.export("d", tmp_path / "d.jsonl")
    assert written.next_command.endswith("d.jsonl --name d --select any")
    again = Workspace(tmp_path / "other.db").datasets.upload(
        "e", tmp_path / "d.jsonl", select="any"
    )
    assert again.dataset.sha256 == sha
    workspace.datasets.upload("all", [Sample("Which?", "A, C", meta={"select": "all"})])
    assert "--select" not in workspace.datasets.export("all", tmp_path / "e.jsonl").next_command


def test_nothing_in_an_exported_dataset_acts_on_a_terminal(
    workspace: Workspace, tmp_path: Path
) -> None:
    text = "\x9b31m \u202e \u2066 \x1b[31m é 日"
    sha = workspace.datasets.upload("d", [Sample(text, text)]).dataset.sha256
    (line,) = workspace.datasets.lines("d")
    assert visible(line.rstrip("\n")) == line.rstrip("\n")
    assert "é 日" in line
    workspace.datasets.export("d", tmp_path / "d.jsonl")
    assert workspace.datasets.upload("e", tmp_path / "d.jsonl").dataset.sha256 == sha


def test_an_export_says_which_rows_are_not_read_back_as_they_are(
    workspace: Workspace, tmp_path: Path
) -> None:
    odd = [Sample("a?", "1\n#### 2"), Sample("b?", "3", level=""), Sample("c?", "4")]
    workspace.datasets.upload("d", odd)
    assert workspace.datasets.export("d", tmp_path / "d.jsonl").changed == 2


@pytest.mark.long
def test_an_export_replaces_nothing_and_holds_few_rows_in_memory(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.datasets.upload("d", (Sample(f"{n}? " + "x" * 10_000, "1") for n in range(1_000)))
    file = tmp_path / "d.jsonl"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="already exists"):
        workspace.datasets.export("d", file)
    assert file.read_text() == "mine"
    tracemalloc.start()
    workspace.datasets.export("d", file, force=True)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert file.stat().st_size > 10_000_000
    assert most < 3_000_000
