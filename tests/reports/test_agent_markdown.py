"""The page shows the agent's texts; none of them becomes part of the page."""

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from grpo_practice.core.text import visible
from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.exported_agent import ExportedAgent
from tests.reports.rendered import render
from tests.reports.sample import AGENT, HOSTILE, agent


def parsed(exported: ExportedAgent) -> list[Token]:
    return MarkdownIt("commonmark").parse(render(exported, "md"))


def shown(token: Token) -> str:
    """What a reader sees of a line; none of it may be a link, an image or HTML."""
    parts = token.children or []
    assert {p.type for p in parts} <= {"text", "text_special", "strong_open", "strong_close"}
    return "".join(p.content for p in parts)


@given(
    name=HOSTILE,
    instructions=HOSTILE,
    learnt=st.lists(HOSTILE, min_size=1, max_size=3),
)
@example("x", "```\n````text\n```", ["a\n# System\n```\n---"])
@example("# x #", "~~~\n</pre><script>", ["[x](javascript:y) <img onerror=z> ![i](j) &lt;"])
def test_no_text_changes_the_page(name: str, instructions: str, learnt: list[str]) -> None:
    library = Library(tuple(Experience(n, t) for n, t in enumerate(learnt, 1)), 9, 1)
    exported = agent(name=name, instructions=instructions, library=library)
    page = parsed(exported)
    top = [t for t in page if t.level == 0 and t.nesting >= 0]
    kinds = [t.type for t in top if t.type != "paragraph_open"]
    assert kinds == [
        "heading_open",
        "bullet_list_open",
        "heading_open",
        "fence",
        "heading_open",
        "bullet_list_open",
    ]
    fence = next(t for t in page if t.type == "fence")
    assert fence.content == visible(exported.system_prompt) + "\n"
    inline = [shown(t) for t in page if t.type == "inline"]
    entries = inline[-len(learnt) :]
    assert entries == [
        f"E{n} {visible(' '.join(text.split()))}".strip() for n, text in enumerate(learnt, 1)
    ]


def test_the_page_says_where_the_agent_comes_from() -> None:
    page = render(AGENT, "md")
    assert "run m (branch 1), after step 3" in page
    assert "library L7: 2 experiences" in page
    assert "on test, 2 questions, 7 of 8 rollouts scored (run m/eval/L1)" in page
    assert "SIMULATED" not in page
    assert "spelt out" not in page


def test_a_page_that_is_not_exact_says_so() -> None:
    page = render(agent(instructions="a\x1b[2Jb"), "md")
    assert "a\\x1b[2Jb" in page
    assert "spelt out" in page


def test_an_agent_without_experiences_says_none() -> None:
    page = render(agent(library=Library(id=1)), "md")
    assert page.endswith("## Experiences\n\nNone.\n")
    assert "0 experiences" in page
