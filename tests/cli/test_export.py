"""The exported file is written whole or not at all."""

import json
from pathlib import Path

import pytest
import yaml

from grpo_practice.errors import ConfigError
from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.files import write_file
from grpo_practice.export.render import FORMATS, Format
from tests.cli.conftest import Gp


def test_the_agent_goes_to_stdout_or_to_a_file(demo: Gp) -> None:
    Path("agent.yaml").unlink()
    ran = demo("export-agent", "--run", "demo")
    assert ran.code == 0
    agent = yaml.safe_load(ran.out)
    assert "[E1]" in agent["agent"]["instructions"]
    ran = demo("export-agent", "--run", "demo", "-o", "agent.yaml")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "wrote agent.yaml\nnext: grpo-practice eval --agent agent.yaml\n"
    assert yaml.safe_load(Path("agent.yaml").read_text()) == agent


def test_the_step_decides_which_experiences_go_along(demo: Gp) -> None:
    first = json.loads(demo("export-agent", "--step", "0", "--format", "json").out)
    last = json.loads(demo("export-agent", "--format", "json").out)
    assert first["schema"] == last["schema"] == "grpo-practice.agent/1"
    assert first["experiences"] != last["experiences"]
    assert demo("export-agent", "--format", "md").out.startswith("# ")


def test_a_format_that_is_a_folder_is_written_below_the_output(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bundle(agent: ExportedAgent) -> dict[str, str]:
        return {"prompt.md": agent.system_prompt, "notes/model.txt": agent.model}

    monkeypatch.setitem(FORMATS, "bundle", Format(bundle))
    ran = demo("export-agent", "--format", "bundle", "-o", "made")
    assert (ran.code, ran.out, ran.err) == (0, "", "wrote made\n")
    assert "[E1]" in Path("made/prompt.md").read_text()
    assert Path("made/notes/model.txt").read_text()
    assert demo("export-agent", "--format", "bundle", "-o", "made").code == 2
    assert demo("export-agent", "--format", "bundle", "-o", "made", "--force").code == 0
    assert "is a folder" in demo("export-agent", "--format", "bundle").err


def test_the_help_names_every_format(demo: Gp) -> None:
    ran = demo("export-agent", "--help")
    assert "|".join(FORMATS) in ran.out
    assert f"there are {', '.join(FORMATS)}" in demo("export-agent", "--format", "toml").err


def test_a_file_that_is_there_needs_force(demo: Gp) -> None:
    Path("agent.yaml").write_text("mine")
    ran = demo("export-agent", "-o", "agent.yaml")
    assert ran.code == 2
    assert "add --force" in ran.err
    assert Path("agent.yaml").read_text() == "mine"
    assert demo("export-agent", "-o", "agent.yaml", "--force").code == 0
    assert "[E1]" in Path("agent.yaml").read_text()


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("theirs")
    link.symlink_to(target)
    with pytest.raises(ConfigError, match="there already"):
        write_file(link, "ours")
    write_file(link, "ours", force=True)
    assert target.read_text() == "theirs"
    assert not link.is_symlink()
    assert link.read_text() == "ours"


def test_a_dangling_link_counts_as_there(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="there already"):
        write_file(link, "ours")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "inner").write_text("x")
    with pytest.raises(ConfigError, match="cannot write"):
        write_file(folder, "ours", force=True)
    with pytest.raises(ConfigError, match="cannot write"):
        write_file(tmp_path / "missing" / "file", "ours")
    with pytest.raises(UnicodeEncodeError):
        write_file(tmp_path / "file", "\ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_text_is_written_byte_for_byte(tmp_path: Path) -> None:
    text = "a\r\nb\rc\n\u2028 é"
    write_file(tmp_path / "file", text)
    assert (tmp_path / "file").read_bytes() == text.encode()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
