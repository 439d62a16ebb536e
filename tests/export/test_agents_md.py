"""A section of an AGENTS.md: written again it replaces itself, and nothing else."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from grpo_practice.errors import ConfigError
from grpo_practice.export.agents_md import BEGIN, END, with_section
from grpo_practice.export.files import write_section
from grpo_practice.types import Experience, Library
from tests.export.rendered import render
from tests.export.sample import AGENT, HOSTILE, agent

SECTION = render(AGENT, "agents-md")
MARKS = ["<!-- grpo-practice end -->", f"x\n{END}\n{BEGIN}\n", "```\n-->", "<!-- grpo-practice"]


@given(
    before=HOSTILE,
    after=HOSTILE,
    learnt=st.lists(st.one_of(HOSTILE, st.sampled_from(MARKS)), min_size=1, max_size=3),
)
@example("# Mine\r\n", "tail", MARKS)
@example("", "", ["\n" + END])
def test_all_else_stays_byte_for_byte_and_no_text_is_a_mark(
    before: str, after: str, learnt: list[str]
) -> None:
    assume("<!-- grpo-practice" not in before + after)
    library = Library(tuple(Experience(n, t) for n, t in enumerate(learnt, 1)), 9, 1)
    hostile = render(agent(name=MARKS[1], library=library), "agents-md")
    first = with_section(before, hostile)
    assert first.startswith(before)
    around = f"{first}{after}"
    # The end mark is a line of its own: what follows it begins a line.
    assert with_section(first, hostile) == first
    twice = with_section(around, SECTION)
    assert twice.startswith(before)
    assert twice.endswith(after)
    assert with_section(twice, hostile) == around or "\r\n" in after


def test_it_is_added_at_the_end_then_replaced_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_bytes(b"# House rules\r\n\r\nBe kind.")
    file.chmod(0o640)
    write_section(file, SECTION)
    added = file.read_bytes()
    assert added.startswith(b"# House rules\r\n\r\nBe kind.\r\n\r\n<!-- grpo-practice begin")
    assert b"\n" not in added.replace(b"\r\n", b"")
    file.write_bytes(added + b"\r\n## After\r\n\xf0\x9f\x98\x80")
    write_section(
        file, render(agent(library=Library((Experience(9, "New: One."),), 10, 2)), "agents-md")
    )
    text = file.read_bytes().decode()
    assert text.startswith("# House rules\r\n\r\nBe kind.\r\n\r\n")
    assert text.endswith("<!-- grpo-practice end -->\r\n\r\n## After\r\n😀")
    assert "[E9] New: One." in text
    assert "[E1]" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "text",
    [
        f"{BEGIN}\nmine\n",
        f"mine\n{END}\n",
        f"{END}\n{BEGIN}\n",
        f"{BEGIN}\n{BEGIN}\n{END}\n",
        f"{BEGIN}\na\n{END}\n{BEGIN}\nb\n{END}\n",
        f"{BEGIN}\na\n  <!-- grpo-practice en -->\n",
        f"{BEGIN[:-3]}\na\n{END}\n",
    ],
)
def test_damaged_marks_are_refused_and_the_file_stays(tmp_path: Path, text: str) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"AGENTS\.md: the marks .* are damaged") as refused:
        write_section(file, SECTION)
    assert "remove the lines" in (refused.value.hint or "")
    assert file.read_text() == text


def test_a_mark_that_was_indented_is_one(tmp_path: Path) -> None:
    text = SECTION.replace(BEGIN, f"  {BEGIN} ")
    assert with_section(f"a\n{text}b\n", SECTION) == f"a\n{SECTION}b\n"


def test_what_is_no_text_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes("Größe".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"is no UTF-8 text \(byte 2\)"):
        write_section(tmp_path / "AGENTS.md", SECTION)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"cannot write .*folder"):
        write_section(tmp_path / "folder", SECTION)


def test_a_library_without_experiences_says_so() -> None:
    assert "None yet." in render(replace(AGENT, library=Library(id=1)), "agents-md")
