"""The formats that other programs read, as the command writes them."""

import ast
import stat
from pathlib import Path

import pytest
import yaml

from tests.contract.command import Gp

BEGIN = "<!-- grpo-practice begin"
END = "<!-- grpo-practice end -->"


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


def test_a_section_is_added_then_replaced_where_it_stands(demo: Gp) -> None:
    file = Path("AGENTS.md")
    file.write_bytes(b"# House rules\r\n\r\nBe kind.")
    file.chmod(0o640)
    assert demo("export-agent", "-o", "AGENTS.md").code == 0
    added = file.read_bytes()
    assert added.startswith(b"# House rules\r\n\r\nBe kind.\r\n\r\n<!-- grpo-practice begin")
    assert b"\n" not in added.replace(b"\r\n", b"")
    file.write_bytes(added.replace(b"[E1]", b"[E77]") + b"\r\n## After\r\n\xf0\x9f\x98\x80")
    assert demo("export-agent", "-o", "AGENTS.md").code == 0
    assert file.read_bytes() == added + b"\r\n## After\r\n\xf0\x9f\x98\x80"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_section_whose_marks_are_damaged_is_left_alone(demo: Gp) -> None:
    section = demo("export-agent", "--format", "agents-md").out
    begin = next(line for line in section.splitlines() if line.startswith(BEGIN))
    file = Path("AGENTS.md")
    for text in (
        f"{begin}\nmine\n",
        f"mine\n{END}\n",
        f"{END}\n{begin}\n",
        f"{begin}\n{begin}\n{END}\n",
        f"{begin}\na\n{END}\n{begin}\nb\n{END}\n",
        f"{begin}\na\n  <!-- grpo-practice en -->\n",
        f"{begin[:-3]}\na\n{END}\n",
    ):
        file.write_text(text)
        ran = demo("export-agent", "-o", "AGENTS.md")
        assert (ran.code, file.read_text()) == (2, text)
        assert "AGENTS.md: the marks " in ran.err
        assert "are damaged" in ran.err
        assert "the lines that begin with" in ran.err
    indented = section.replace(begin, f"  {begin} ")
    file.write_text(f"a\n{indented}b\n")
    assert demo("export-agent", "-o", "AGENTS.md").code == 0
    assert file.read_text() == f"a\n{section}b\n"
    file.write_bytes("Größe".encode("latin-1"))
    assert "is not UTF-8 text (byte 2)" in demo("export-agent", "-o", "AGENTS.md").err
    Path("folder").mkdir()
    ran = demo("export-agent", "--format", "agents-md", "-o", "folder")
    assert "cannot write folder" in ran.err


@pytest.mark.parametrize("folder", ["-a", "a--b", "a_b", "ä", "x" * 65])
def test_a_folder_that_cannot_be_a_name_is_refused(demo: Gp, folder: str) -> None:
    ran = demo("export-agent", "--format", "skill", "-o", f"./{folder}")
    assert ran.code == 2
    assert "single hyphens" in ran.err
    assert not Path(folder).exists()


def test_the_folder_names_the_skill(demo: Gp) -> None:
    ran = demo("export-agent", "--format", "skill", "-o", "skills/sums-2")
    assert (ran.code, ran.err) == (0, "wrote skills/sums-2\n")
    text = Path("skills/sums-2/SKILL.md").read_text()
    assert yaml.safe_load(text.split("---\n")[1])["name"] == "sums-2"
    assert "SIMULATED" in text
    assert "[E1]" in Path("skills/sums-2/references/experiences.md").read_text()
    ran = demo("export-agent", "--format", "skill", "-o", "My Skill")
    assert (ran.code, Path("My Skill").exists()) == (2, False)
    assert "a skill's folder has the skill's name" in ran.err
    assert "name the folder " in ran.err


def test_a_python_file_is_for_the_sdk(demo: Gp) -> None:
    ran = demo("export-agent", "-o", "agent.py")
    assert (ran.code, ran.err) == (0, "wrote agent.py\n")
    source = Path("agent.py").read_text()
    assert "from agents import Agent" in source
    said = demo("export-agent", "--format", "json").document
    (prompt,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "INSTRUCTIONS"
    ]
    assert prompt == said["system_prompt"]


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
