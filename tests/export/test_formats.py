"""The slice adds its formats to the table of the core."""

from pathlib import Path

from grpo_practice.export import FOREIGN
from grpo_practice.reports.agent_formats import DEFAULT, FORMATS, format_by_name


def test_a_file_name_selects_the_format_with_the_longest_suffix() -> None:
    names = ("x/AGENTS.md", "my-agents.md", "agent.py", "skill")
    assert [format_by_name(name) for name in names] == ["agents-md", "md", "openai-agents", DEFAULT]


def test_the_readme_names_each_format() -> None:
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text("utf-8").split())
    named = {name for name in FORMATS if f"`--format {name}`" in readme}
    assert set(FOREIGN) < named | {DEFAULT} == set(FORMATS)
