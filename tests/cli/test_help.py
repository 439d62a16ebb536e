"""Every command explains itself, with an example that can be typed."""

import re
import shlex
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from grpo_practice.main import app


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
        *("report", "view", "skill"),
        "data download",
        *("data upload", "data list", "data show", "data export", "data delete"),
        *("data split", "data sample"),
        *("runs list", "runs show", "runs delete", "runs compare", "runs diagnose"),
        *("runs trace", "runs tag", "runs note"),
        *("runs export", "runs import", "export-data"),
        *("rollouts list", "rollouts show"),
        *("experiences list", "experiences show", "experiences approve", "experiences reject"),
        *("experiences effect", "experiences prune"),
        *("experiences diff", "experiences remove", "experiences edit"),
        *("config show", "config validate"),
        *("db backup", "db check"),
    }


def shown_help(words: tuple[str, ...]) -> str:
    done = CliRunner().invoke(app, [*words, "--help"])
    assert (words, done.exit_code) == (words, 0)
    return done.output


def unreadable(words: tuple[str, ...], shown: str) -> str | None:
    """Return what is wrong with the example in a command's help; None if nothing is."""
    _, found, rest = shown.partition("Example: ")
    lines, _, options = rest.partition("\n\n")
    example = shlex.split(" ".join(lines.split()))
    if not found or example[: len(words) + 1] != ["grpo-practice", *words]:
        return "it has no example that begins with the command"
    unknown = [
        word
        for word in example
        if word.startswith("-") and not re.search(rf"(^|\s){word}[ ,]", options)
    ]
    return f"its example has the unknown options {unknown}" if unknown else None


def test_the_example_in_each_help_is_one_the_command_can_read() -> None:
    wrong = {words: unreadable(words, shown_help(words)) for words in ALL}
    assert {words: why for words, why in wrong.items() if why} == {}


def test_arguments_do_not_show_types_of_python() -> None:
    helps = {words: shown_help(words) for words in ALL}
    assert [words for words, shown in helps.items() if "list[" in shown or "[[" in shown] == []


def test_the_list_of_commands_is_not_cut_off() -> None:
    for group in ((), ("data",), ("runs",), ("rollouts",), ("experiences",), ("config",)):
        listed = CliRunner().invoke(app, [*group, "--help"]).output.split("Commands:")[1]
        assert "..." not in listed


@pytest.mark.parametrize("columns", [80, 120])
def test_each_help_fits_and_speaks_of_no_types(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    helps = {words: shown_help(words) for words in ALL}
    types = r"<(?:int|str|float|path)[^>]*>|x>=[01]\b"
    assert [words for words, shown in helps.items() if re.search(types, shown)] == []
    widths = {words: max(map(len, shown.splitlines())) for words, shown in helps.items()}
    assert {words: width for words, width in widths.items() if width > columns} == {}


def headings(*words: str) -> dict[str, list[str]]:
    """The options of a command, by the heading they stand under."""
    shown = CliRunner().invoke(app, [*words, "--help"]).output
    parts = re.split(r"^(\w[\w ]+):\n", shown, flags=re.MULTILINE)[1:]
    found = zip(parts[::2], parts[1::2], strict=True)
    return {title: re.findall(r"^  (?:-\w, )?(--?[\w-]+)", text, re.M) for title, text in found}


def test_many_options_stand_in_groups_and_few_in_one_list() -> None:
    shown = headings("practice")
    assert list(shown) == [
        *("What to run", "Speed and cost", "Replaying and rescoring", "Traces"),
        *("Trust", "Options"),
    ]
    assert shown["Options"] == ["--verbose", "--db", "--json", "--help"]
    assert headings("eval")["Options"] == ["--verbose", "--show", "--db", "--json", "--help"]
    assert list(headings("data", "upload")) == ["Arguments", "Rows", "Name", "Options"]
    assert list(headings("serve")) == ["Options"]


def test_a_least_number_that_is_no_count_is_said() -> None:
    done = CliRunner().invoke(app, ["practice", "--help"]).output
    assert re.search(r"--grpo-n N +Rollouts per sample\.  \[2 or more\]", done)
