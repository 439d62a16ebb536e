"""The commands of pages that need a practised run, typed in the order they are shown."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.readme import ROOT, commands

PAGES = ("exports", "proof", "attempts")
LEARN = "practice --config math.yaml --set practice.epochs=1"


def prepare(gp: Gp) -> None:
    """Make the runs, configs, datasets and logs that the pages speak of."""

    def run(command: str) -> None:
        ran = gp(*shlex.split(command))
        assert ran.code == 0, (command, ran.err)

    run("init . --exp-id math")
    Path(".env").write_text("UTU_LLM_MODEL=sim\n", "utf-8")
    Path(".env").chmod(0o600)
    run("data upload mine.jsonl --name mine --verify exact")
    run("data split mine --into train=0.5,test=0.3,held-out=0.2")
    run("data export mine-test -o test.jsonl")
    run("data upload test.jsonl --name test")
    run("data export mine-held-out -o held-out.jsonl")
    run("data upload held-out.jsonl --name held-out")
    text = Path("practice.yaml").read_text("utf-8")
    Path("math.yaml").write_text(text, "utf-8")
    Path("support.yaml").write_text(re.sub(r"exp_id: .*", "exp_id: support", text), "utf-8")
    lines = [
        {"question": row["question"], "response": said, "answer": row["answer"], "reward": reward}
        for row in map(json.loads, Path("held-out.jsonl").read_text("utf-8").splitlines())
        for said, reward in ((str(row["answer"]), 1), ("I do not know", 0))
    ]
    Path("logs.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    for name in ("helpdesk", "demo", "math"):
        run(f"{LEARN} --exp-id {name}")
    run("eval --run demo --arms none,full")
    run("eval --run math --arms none,full")


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_every_command_can_be_typed(gp: Gp, page: str) -> None:
    prepare(gp)
    typed = 0
    for line in commands(ROOT / f"docs/{page}.md", kinds="sh|bash|console"):
        program, *words = shlex.split(line.removeprefix("$ ").partition(" | ")[0], comments=True)
        if program == "grpo-practice":
            ran = gp(*words)
            assert ran.code == 0, (line, ran.err)
            typed += 1
    assert typed >= 4
