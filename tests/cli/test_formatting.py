"""Commands are recorded without secrets; numbers are short."""

import pytest

from grpo_practice.cli.options import as_typed
from grpo_practice.cli.terminal import consoles
from grpo_practice.cli.terminal.formatting import duration, note, print_json, reward, say, tokens
from grpo_practice.core.redact import redactor


@pytest.mark.parametrize(
    "word",
    [
        "a.model_provider.api_key=sk-secret",
        "--set=agent.api_key=sk-secret",
        "agent.model={model_provider: {api_key: sk-secret}, x: 1}",
        "agent.model_settings.extra_headers={X-Key: sk-secret}",
        "API_KEY=sk-secret",
        "x.extra_query={a: sk-secret}",
        "x.base_url=https://me:sk-secret@host/v1",
        "x.base_url=[https://host/v1?key=sk-secret]",
    ],
)
def test_the_recorded_command_hides_keys_however_they_are_set(word: str) -> None:
    text = as_typed(argv=["eval", "--set", word])
    assert "sk-secret" not in text
    assert "***" in text


def test_the_recorded_command_hides_loaded_secrets_and_urls_passwords() -> None:
    words = ["eval", "--base-url", "https://me:pw123@host/v1?key=abc", "--dataset", "hunter22 x"]
    redactor.know(["hunter22"])
    text = as_typed(words)
    assert text == "grpo-practice eval --base-url 'https://***@host/v1?key=***' --dataset '*** x'"


def test_a_command_without_secrets_can_be_typed_again() -> None:
    words = ["practice", "--config", "a b.yaml", "--set", "practice.grpo_n=4", "--set", "x=${A}"]
    words += ["--set", "agent.model.model_settings.max_tokens=99"]
    assert as_typed(argv=words) == (
        "grpo-practice practice --config 'a b.yaml' --set practice.grpo_n=4 --set 'x=${A}'"
        " --set agent.model.model_settings.max_tokens=99"
    )


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (None, "unknown"),
        (0, "0"),
        (9_999, "9999"),
        (10_000, "10.0k"),
        (999_949, "999.9k"),
        (999_950, "1.00M"),
    ],
)
def test_tokens_are_short_and_never_a_made_up_zero(n: int | None, text: str) -> None:
    assert tokens(n) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.96, "10.0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (7_500, "2 h 5 min")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_no_reward_is_not_zero() -> None:
    assert (reward(None), reward(0.0)) == ("-", "0.000")


def test_a_document_cannot_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "\x9b31m\u202e\x1b[2J é"})
    assert capsys.readouterr().out.isascii()
    with pytest.raises(ValueError, match="JSON compliant"):
        print_json({"a": float("nan")})


@pytest.mark.parametrize("terminal", [True, False])
def test_long_lines_are_wrapped_at_words_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    for console in (consoles.out, consoles.err):
        monkeypatch.setattr(console, "_force_terminal", terminal)
        monkeypatch.setattr(console, "_width", 24)
    say("note: wonderfully unbreakable words")
    note("hint: grpo-practice eval --config practice.yaml")
    out, err = capsys.readouterr()
    break_ = "\n" if terminal else " "
    assert out.replace(" \n", "\n") == f"note: wonderfully{break_}unbreakable words\n"
    assert err == "hint: grpo-practice eval --config practice.yaml\n"


def test_what_is_indented_is_wrapped_under_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(consoles.out, "_force_terminal", True)
    monkeypatch.setattr(consoles.out, "_width", 24)
    say("  row 12: wonderfully unbreakable [red]words[/red]")
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == [
        "  row 12: wonderfully",
        "  unbreakable",
        "  [red]words[/red]",
    ]


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("1", 10), ("9", 10), ("33", 33)])
def test_a_terminal_without_columns_is_printed_to(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    printed = consoles.as_text("word " * 100, None)
    assert printed.split() == ["word"] * 100
    assert width - 6 <= max(map(len, printed.splitlines())) <= width
