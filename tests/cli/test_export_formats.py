"""The formats that other programs read, as the command writes them."""

from pathlib import Path

import yaml

from grpo_practice.export.agents_md import END
from tests.cli.conftest import Gp


def test_the_command_writes_it_twice_without_force(demo: Gp) -> None:
    Path("AGENTS.md").write_text("# Mine\n")
    for _ in range(2):
        ran = demo("export-agent", "-o", "AGENTS.md")
        assert (ran.code, ran.out, ran.err) == (0, "", "wrote AGENTS.md\n")
    text = Path("AGENTS.md").read_text()
    assert text == "# Mine\n\n" + demo("export-agent", "--format", "agents-md").out
    assert text.count("[E1]") == 1
    assert "SIMULATED" in text
    Path("AGENTS.md").write_text(f"{END}\n")
    ran = demo("export-agent", "-o", "AGENTS.md", "--force")
    assert (ran.code, Path("AGENTS.md").read_text()) == (2, f"{END}\n")


def test_the_folder_names_the_skill(demo: Gp) -> None:
    ran = demo("export-agent", "--format", "skill", "-o", "skills/sums-2")
    assert (ran.code, ran.err) == (0, "wrote skills/sums-2\n")
    text = Path("skills/sums-2/SKILL.md").read_text()
    assert yaml.safe_load(text.split("---\n")[1])["name"] == "sums-2"
    assert "SIMULATED" in text
    assert "[E1]" in Path("skills/sums-2/references/experiences.md").read_text()
    ran = demo("export-agent", "--format", "skill", "-o", "My Skill")
    assert (ran.code, Path("My Skill").exists()) == (2, False)
    assert "the folder of a skill is named as the skill is" in ran.err
    assert "name the folder " in ran.err


def test_a_python_file_is_for_the_sdk(demo: Gp) -> None:
    ran = demo("export-agent", "-o", "agent.py")
    assert (ran.code, ran.err) == (0, "wrote agent.py\n")
    assert "from agents import Agent" in Path("agent.py").read_text()
