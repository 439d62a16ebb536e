"""Runs in tables of a given width."""

import pytest

from grpo_practice.cli.terminal.consoles import out
from tests.cli.conftest import Gp


@pytest.mark.parametrize("width", ["80", "120"])
def test_a_run_s_name_stays_whole_for_whoever_copies_it(
    demo: Gp, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    name = "a-rather-long-name-of-a-task"
    words = ("--dataset", "test", "--limit", "1", "--model", "sim", "--exp-id", name)
    run = demo("eval", *words, "--verify", "contains", "--json").document["run"]
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(out, "_width", int(width))  # the console of an earlier test has its own
    listed = demo("runs", "list").out.splitlines()
    assert run in [line.split(" ")[0] for line in listed]
    table = [line for line in listed if not line.startswith(("next", "  columns left out"))]
    assert all(len(line) <= int(width) for line in table)


def test_a_run_s_name_without_room_is_broken_between_its_parts(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a-very-long-name-of-an-experiment-that-takes-nearly-all-of-it-and-more"
    words = ("--dataset", "test", "--limit", "1", "--model", "sim", "--exp-id", name)
    run = demo("eval", *words, "--json", "--verify", "contains").document["run"]
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setattr(out, "_width", 90)
    listed = demo("runs", "list").out.splitlines()
    cells = [line[: listed[0].index("score")].strip() for line in listed[1:]]
    assert run in "".join(cells)
    assert all(len(line) <= 90 for line in listed if not line.startswith("next"))


def test_name_score_and_begin_stay_on_a_narrow_terminal(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--dataset", "test", "--limit", "1", "--model", "sim", "--verify", "contains")
    assert demo("eval", *words, "--exp-id", "a-rather-long-name-of-a-task").code == 0
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(out, "_width", 80)
    head, first, *_ = demo("runs", "list").out.splitlines()
    assert head.split("  ")[0] == "run"
    assert head.split()[-3:] == ["score", "begun", "(UTC)"]
    assert first.startswith("a-rather-long-name-of-a-task/eval/model=sim/verify=contains  ")
