"""The exported file is written whole or not at all."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest
import yaml

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import write_file
from grpo_practice.reports.agent_formats import FORMATS, Format
from grpo_practice.reports.exported_agent import ExportedAgent
from tests.cli.conftest import Gp


def test_the_agent_goes_to_stdout_or_to_a_file(demo: Gp) -> None:
    Path("agent.yaml").unlink()
    ran = demo("export-agent", "--run", "demo")
    assert ran.code == 0
    agent = yaml.safe_load(ran.out)
    assert "[E1]" in agent["agent"]["instructions"]
    ran = demo("export-agent", "--run", "demo", "-o", "agent.yaml")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "wrote agent.yaml\n"  # both are measured
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
    assert "writes a folder" in demo("export-agent", "--format", "bundle").err


def test_the_help_names_every_format(demo: Gp) -> None:
    ran = demo("export-agent", "--help")
    assert "|".join(FORMATS) in ran.out
    assert f"choose one of {', '.join(FORMATS)}" in demo("export-agent", "--format", "toml").err


def test_a_file_that_is_there_needs_force(demo: Gp) -> None:
    Path("agent.yaml").write_text("mine")
    ran = demo("export-agent", "-o", "agent.yaml")
    assert ran.code == 2
    assert "add --force" in ran.err
    assert Path("agent.yaml").read_text() == "mine"
    assert demo("export-agent", "-o", "agent.yaml", "--force").code == 0
    assert "[E1]" in Path("agent.yaml").read_text()


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    target, link = tmp_path / "other/target", tmp_path / "link"
    target.write_text("theirs")
    link.symlink_to("other/target")
    with pytest.raises(ConfigError, match="already exists"):
        write_file(link, "ours")
    assert target.read_text() == "theirs"
    write_file(link, "ours", force=True)
    assert link.is_symlink()
    assert (target.is_symlink(), target.read_text()) == (False, "ours")
    target.unlink()
    write_file(link, "again", force=True)
    assert (link.is_symlink(), target.read_text()) == (True, "again")
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_link_to_itself_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=r"cannot write .*loop"):
        write_file(tmp_path / "loop", "ours", force=True)
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path, force: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        write_file(tmp_path / name, "ours", force=force)
        assert os.read(reader, 100) == b"ours"
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o666, os.makedev(7, 999))
    except PermissionError:
        pytest.skip("only root makes devices")
    for name, said in (("full", "No space left"), ("disk", "it is a disk")):
        with pytest.raises(ConfigError, match=said):
            write_file(tmp_path / name, "ours", force=True)
    assert (tmp_path / "full").is_char_device()
    assert (tmp_path / "disk").is_block_device()


def test_a_socket_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket may have about 100 characters
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(ConfigError, match="cannot write"):
            write_file(tmp_path / "s", "ours", force=True)
    assert (tmp_path / "s").is_socket()


def test_a_dash_is_stdout(demo: Gp) -> None:
    plain = demo("export-agent", "--run", "demo").out
    ran = demo("export-agent", "--run", "demo", "-o", "-")
    assert (ran.code, ran.out, ran.err) == (0, plain, "")
    assert not Path("-").exists()


def test_a_dangling_link_counts_as_there(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="already exists"):
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
