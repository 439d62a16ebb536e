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


def test_rows_go_to_stdout_or_to_a_file(demo: Gp) -> None:
    ran = demo("runs", "export", "demo", "--format", "csv")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("run,branch,step,epoch,slot,attempt,number,question,gold,answer,")
    assert demo("runs", "export", "demo", "--format", "csv", "-o", "-").out == ran.out
    said = demo("runs", "export", "demo", "-o", "rows.csv")
    assert (said.code, said.out) == (0, "")
    lines = demo("runs", "export", "demo").out.splitlines()
    assert said.err == f"wrote rows.csv: {len(lines)} rollouts\n"
    assert Path("rows.csv").read_bytes().decode() == ran.out
    again = demo("runs", "export", "demo", "-o", "rows.csv")
    assert (again.code, "add --force" in again.err) == (2, True)
    assert demo("runs", "export", "demo", "--json").code == 2
    assert demo("runs", "export", "demmo").err.endswith("hint: did you mean demo?\n")
