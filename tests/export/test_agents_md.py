"""A section of an AGENTS.md: written again it replaces itself, and nothing else."""

from dataclasses import replace

from hypothesis import assume, example, given
from hypothesis import strategies as st

from grpo_practice.core.types import Experience, Library
from grpo_practice.export.agents_md import BEGIN, END, to_section, with_section
from tests.reports.sample import AGENT, HOSTILE, agent

SECTION = to_section(AGENT)
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
    hostile = to_section(agent(name=MARKS[1], library=library))
    first = with_section(before, hostile)
    assert first.startswith(before)
    around = f"{first}{after}"
    # The end mark is a line of its own: what follows it begins a line.
    assert with_section(first, hostile) == first
    twice = with_section(around, SECTION)
    assert twice.startswith(before)
    assert twice.endswith(after)
    assert with_section(twice, hostile) == around or "\r\n" in after


def test_a_library_without_experiences_says_so() -> None:
    assert "None yet." in to_section(replace(AGENT, library=Library(id=1)))
