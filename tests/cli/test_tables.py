"""Tables where there is little room."""

import pytest

from grpo_practice.cli.terminal import consoles
from grpo_practice.cli.terminal.tables import table
from grpo_practice.core.redact import Redactor
from tests.cli.conftest import Gp


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    width: int = request.param
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(consoles.out, "_width", width)
    return width


WORDS = {"step", "epoch", "mean", "reward", "scored", "informative", "experiences", "library"}
WORDS |= {"status", "score"}


@pytest.mark.parametrize("columns", [60, 100], indirect=True)
def test_no_word_of_the_steps_is_cut_and_no_row_is_wrapped(demo: Gp, columns: int) -> None:
    for words in (("practice",), ("runs", "show", "demo")):
        lines = demo(*words, "--db", "grpo-practice.db").out.splitlines()
        step = next(i for i, line in enumerate(lines) if line.startswith("step"))
        first = max(i for i, line in enumerate(lines[:step]) if not line) + 1
        rows = [line for line in lines[first:] if line[:4].strip().isdigit()]
        assert [row.split()[0] for row in rows] == ["0", "1", "2", "3"]
        header = lines[first : lines.index(rows[0])]
        assert {word for line in header for word in line.split()} <= WORDS
        assert lines.index(rows[3]) == lines.index(rows[0]) + 3
        assert max(map(len, [*header, *rows])) <= columns


@pytest.mark.parametrize("columns", [60], indirect=True)
def test_columns_that_are_left_out_are_named(demo: Gp, columns: int) -> None:
    shown = demo("runs", "show", "demo").out
    assert "  columns left out at this width: epoch, library\n" in shown


@pytest.mark.parametrize("columns", [12], indirect=True)
def test_what_has_no_room_even_so_is_folded(
    columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    table(["long name", "n"], [("x" * 15, "1")], least=["n"])
    text = capsys.readouterr().out
    assert text.replace(" ", "").count("x") == 15
    assert max(map(len, text.splitlines()[:-1])) <= columns
    table(["a", "b"], [], least=["b"])
    assert capsys.readouterr().out == ""


def test_cells_are_aligned_by_what_they_take_on_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table(["name", "n", "b"], [("é日本", "1", "[red]x"), ("a", "22", "y")], right=["n"])
    lines = ["name    n  b", "é日本   1  [red]x", "a      22  y"]
    assert capsys.readouterr().out.splitlines() == lines


def test_columns_are_as_wide_as_what_hides_a_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grpo_practice.core.redact.redactor", redactor := Redactor())
    redactor.know([secret := "table-secret-0123456789abcdef"])
    table(["a", "b"], [(secret, "1"), ("x", "2")])
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["a    b", "***  1", "x    2"]


@pytest.mark.parametrize("columns", [40], indirect=True)
def test_stages_leave_columns_out_and_break_no_word(demo: Gp, columns: int) -> None:
    shown = demo("runs", "show", "demo").out.partition("95 % interval")[2]
    rows = [line for line in shown.splitlines() if line.startswith(("play ", "merge "))]
    assert len(rows) == 2
    assert all(row.endswith("$0.00") for row in rows)
    assert "columns left out at this width: model\n" in shown
