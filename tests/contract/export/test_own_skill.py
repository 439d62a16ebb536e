"""`skill`: its text is true, since each command in it runs and each key in it exists."""

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_practice import Workspace
from tests.contract.command import Gp
from tests.contract.golden import file_of
from tests.contract.help import refusal

DOCS = Path(__file__).parents[3] / "docs"
FOLDER = Path("skills/grpo-practice")


@pytest.fixture
def text(gp: Gp) -> str:
    """The skill, as the command writes it."""
    assert gp("skill").code == 0
    return (FOLDER / "SKILL.md").read_text("utf-8")


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the table whose first row begins with this title."""
    table = text.partition(f"| {title} |")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


@pytest.mark.long
def test_every_command_runs_in_the_order_it_is_shown(
    gp: Gp, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTU_LLM_MODEL", "sim")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    script = [line for block in blocks for line in block.splitlines()]
    assert len(script) > 20
    libraries = {"L7": "", "L8": ""}  # as the skill calls those that its edits make
    for line in script:
        words = shlex.split(re.sub(r"\bL[78]\b", lambda found: libraries[found[0]], line))
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
            known = [json.loads(row) for row in Path("mine.jsonl").read_text("utf-8").splitlines()]
            with Path("tasks.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(
                    [("Prompt", "Solution"), *((row["question"], row["answer"]) for row in known)]
                )
        elif words[0] == "grpo-practice":
            ran = gp(*words[1:])
            assert (line, ran.code) == (line, 0), ran.err
            if edited := re.match(r"(L\d+): \d+ experiences; ", ran.out):
                libraries[next(name for name, made in libraries.items() if not made)] = edited[1]
    # The last export rolls the edit back.
    assert "Take away all full groups first" not in Path("agent.yaml").read_text("utf-8")


def test_commands_in_sentences_and_tables_exist(text: str) -> None:
    inline = re.findall(r"`grpo-practice ([^`]+)`", text)
    tables = [
        command
        for title in ("command", "exit")
        for row in rows(text, title)
        for command in re.findall(r"`([a-z][a-z -]+)`", row[0 if title == "command" else -1])
    ]
    assert len(tables) > 10
    for command in (*inline, *tables):
        words = shlex.split(command.replace("COMMAND", "eval").replace("RUN", "x"))
        assert (command, refusal([*words, "--help"])) == (command, None)


def at(document: Any, key: str) -> Any:
    """The value at a dotted key of a document, in the first entry of each list."""
    for part in key.split("."):
        document = document[0] if isinstance(document, list) else document
        document = document[part]
    return document


def test_each_key_is_one_of_the_document(text: str) -> None:
    for commands, keys in rows(text, "command"):
        for command in re.findall(r"`([^`]+)`", commands):
            document = json.loads(file_of(command).read_text("utf-8"))
            named = re.findall(r"`([\w.]+)`", re.sub(r"\(`ok`.*?\)|`(hint|command)`", "", keys))
            assert named
            for key in named:
                at(document, f"findings.{key}" if key in ("severity", "sentence") else key)
    assert "`power.finds`" in text
    assert at(json.loads(file_of("eval --dry-run").read_text("utf-8")), "power.finds")


def test_verdicts_and_exit_codes_are_those_of_the_pages(text: str) -> None:
    page = (DOCS / "proof.md").read_text("utf-8")
    verdicts = [row[0] for row in rows(text, "verdict on `full` compared with `none`")]
    assert verdicts == [one for row in rows(page, "verdict") for one in row[0].split(", ")]
    codes = {row[0] for row in rows((DOCS / "running.md").read_text("utf-8"), "code")}
    assert {row[0] for row in rows(text, "exit")} <= codes


def test_it_is_a_short_skill(text: str) -> None:
    head = yaml.safe_load(text.split("---\n")[1])
    assert set(head) == {"name", "description"}
    assert head["name"] == FOLDER.name
    assert len(head["description"]) <= 1024
    assert len(text.splitlines()) <= 180


def test_what_it_tells_next_depends_on_the_folder(gp: Gp) -> None:
    ran = gp("skill")
    assert f"wrote {FOLDER}/SKILL.md" in ran.out
    assert ran.out.splitlines()[-1] == "next: grpo-practice skill -o .agents/skills/grpo-practice"
    assert gp("skill", "-o", ".claude/skills/grpo-practice", "--json").document["next"] is None
    ran = gp("skill", "-o", ".agents/skills/grpo-practice")
    assert ran.out.splitlines()[-1] == "then begin a new session of your coding agent"


def test_other_content_is_replaced_only_by_force(gp: Gp, text: str) -> None:
    file = FOLDER / "SKILL.md"
    (FOLDER / "notes.md").write_text("mine")
    assert gp("skill").code == 0  # the same text
    file.write_text("mine")
    ran = gp("skill")
    assert (ran.code, file.read_text()) == (2, "mine")
    assert "already exists" in ran.err
    assert gp("skill", "--force").code == 0
    assert (file.read_text("utf-8"), (FOLDER / "notes.md").read_text()) == (text, "mine")


def test_the_folder_has_the_name_of_the_skill(gp: Gp) -> None:
    ran = gp("skill", "-o", ".claude/skills")
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == ("hint: grpo-practice skill -o .claude/skills/grpo-practice")
    assert list(Path().iterdir()) == []
    written = Workspace("x.db").write_skill(Path("a/grpo-practice"))
    assert written.files == [Path("a/grpo-practice/SKILL.md")]
    assert not Path("x.db").exists()
