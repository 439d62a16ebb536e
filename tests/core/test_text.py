"""Foreign text cannot act on a terminal, and is not hidden from the reader."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.text import brief, ordinal, unlike, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb", r"a\rb"),
        ("evil\u202egpj", r"evil\u202egpj"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\ud800", r"\ud800"),
        ("nul\0", r"nul\x00"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("12\u00a0%, naïve, 数学, ½, 🎓", "12\u00a0%, naïve, 数学, ½, 🎓"),
        ("[red]no markup[/red]", "[red]no markup[/red]"),
    ],
)
def test_what_could_act_is_shown_and_the_rest_is_left(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_no_control_or_format_character_is_left(text: str) -> None:
    left = {unicodedata.category(c) for c in visible(text) if c not in "\n\t"}
    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def test_brief_is_one_line_and_says_when_it_was_cut() -> None:
    assert brief("a\n  b\tc", 10) == "a b c"
    assert brief("abcdef", 6) == "abcdef"
    assert brief("abcdefg", 6) == "abcde…"
    assert brief(" " * 1000 + "far away", 20).endswith("…")
    assert len(brief("\x1b" * 50, 20)) == 20


def test_texts_that_differ_late_are_shown_from_where_they_do() -> None:
    was, now = f"{'x' * 90} old {'y' * 90}", f"{'x' * 90} new {'y' * 90}"
    a, b = unlike(was, now, 40)
    assert a.startswith("…xxx")
    assert " old y" in a
    assert " new y" in b
    assert max(len(a), len(b)) <= 40
    assert unlike("1", "2", 40) == ("1", "2")
    assert unlike(was, was, 40)[0] == brief(was, 40)


def test_ordinals() -> None:
    shown = " ".join(ordinal(n) for n in (1, 3, 9, 10, 11, 12, 21, 22, 33, 111, 113))
    assert shown == "first third ninth 10th 11th 12th 21st 22nd 33rd 111th 113th"
