"""Every command explains itself, with an example that can be typed."""

import re
import shlex
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from grpo_practice.cli.main import app


def commands(group: typer.Typer, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command of the program."""
    for command in group.registered_commands:
        yield (*above, command.name or str(getattr(command.callback, "__name__", "")))
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        assert inner.name is not None
        yield from commands(inner.typer_instance, (*above, inner.name))


ALL = list(commands(app))


def test_all_commands_are_there() -> None:
    assert {" ".join(words) for words in ALL} == {
        *("init", "demo", "doctor", "verify", "eval", "practice", "export-agent", "serve", "trust"),
        "train",
        *("report", "view"),
        "data download",
        *("data upload", "data list", "data show", "data export", "data delete"),
        *("data stats", "data split", "data sample"),
        *("runs list", "runs show", "runs delete", "runs compare", "runs diagnose"),
        "runs trace",
        *("runs export", "export-data"),
        *("rollouts list", "rollouts show"),
        *("experiences list", "experiences show", "experiences approve", "experiences reject"),
        *("experiences effect", "experiences prune"),
        *("experiences diff", "experiences remove", "experiences edit"),
        *("config show", "config validate"),
        *("db backup", "db check"),
    }


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_example_in_the_help_is_one_the_command_can_read(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0
    assert "Example: grpo-practice " in done.output
    lines = done.output.split("Example: ", 1)[1].split("\n\n")[0]
    example = shlex.split(" ".join(lines.split()))[1:]
    assert example[: len(words)] == list(words)
    known = done.output.split("Example: ", 1)[1].split("\n\n", 1)[1]
    for option in (word for word in example if word.startswith("-")):
        assert re.search(rf"(^|\s){option}[ ,]", known), f"{option}: no option of {words}"


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_arguments_do_not_show_types_of_python(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"]).output
    assert "list[" not in shown
    assert "[[" not in shown


def test_the_list_of_commands_is_not_cut_off() -> None:
    for group in ((), ("data",), ("runs",), ("rollouts",), ("experiences",), ("config",)):
        listed = CliRunner().invoke(app, [*group, "--help"]).output.split("Commands:")[1]
        assert "..." not in listed


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_help_fits_and_speaks_of_no_types(
    words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = CliRunner().invoke(app, [*words, "--help"]).output
    assert not re.findall(r"<(?:int|str|float|path)[^>]*>|x>=[01]\b", shown)
    assert max(map(len, shown.splitlines())) <= columns


def headings(*words: str) -> dict[str, list[str]]:
    """The options of a command, by the heading they stand under."""
    shown = CliRunner().invoke(app, [*words, "--help"]).output
    parts = re.split(r"^(\w[\w ]+):\n", shown, flags=re.MULTILINE)[1:]
    found = zip(parts[::2], parts[1::2], strict=True)
    return {title: re.findall(r"^  (?:-\w, )?(--?[\w-]+)", text, re.M) for title, text in found}


def test_many_options_stand_in_groups_and_few_in_one_list() -> None:
    shown = headings("practice")
    assert list(shown) == [
        *("What is played", "Speed and money", "Playing or scoring again", "Traces"),
        *("Trust", "Options"),
    ]
    assert shown["Options"] == ["--verbose", "--db", "--json", "--help"]
    assert headings("eval")["Options"] == ["--show", "--verbose", "--db", "--json", "--help"]
    assert list(headings("data", "upload")) == ["Arguments", "The rows", "The name", "Options"]
    assert list(headings("serve")) == ["Options"]


def test_a_least_number_that_is_no_count_is_said() -> None:
    done = CliRunner().invoke(app, ["practice", "--help"]).output
    assert re.search(r"--grpo-n N +Rollouts per sample\.  \[2 or more\]", done)
