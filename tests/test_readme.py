"""What the README and its pages say is true: commands run, the reference is the generated one."""

import json
import os
import re
import shlex
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from grpo_practice.effects.request import EffectRequest
from grpo_practice.main import run
from grpo_practice.run.requests.runs import (
    ArmsRequest,
    EvalRequest,
    PracticeRequest,
)
from grpo_practice.sim import World
from grpo_practice.train.requests import TrainRequest, TuneRequest
from tests.config.reference import reference_markdown
from tests.contract.help import refusal
from tests.readme import ELSEWHERE, README, ROOT, THERE, commands, type_commands
from tests.workflows.play import MATH, WEB

REFERENCE = ROOT / "docs/configuration.md"
DATABASE = ROOT / "docs/database.md"
PAGES = (README, ROOT / "docs/running.md", REFERENCE, ROOT / "docs/endpoints.md", DATABASE)
"""Pages whose commands are typed one after the other, in the project that the first one begins."""
WORKFLOWS = ROOT / "docs/workflows.md"
KINDS = (EvalRequest, ArmsRequest, PracticeRequest, EffectRequest, TrainRequest, TuneRequest)
"""Requests whose fields are keywords of a method."""
FORECASTS = {
    "evaluate": "forecast_evaluation",
    "evaluate_arms": "forecast_arms",
    "practise": "forecast_practice",
}
"""Method → the one that forecasts it, which alone plays a pilot."""


def test_every_command_runs_in_the_order_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [n for n in os.environ if n.startswith(("UTU_", "OPENAI_", "JUDGE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UTU_LLM_MODEL", "sim")

    def typed(words: list[str], folder: Path) -> str:
        monkeypatch.chdir(folder)
        if words[0] != "grpo-practice":
            subprocess.run(words, check=True)
            return ""
        monkeypatch.setattr("sys.argv", words)
        # In this process, since a new one for each command takes three times as long.
        code, shown = run(words[1:]), capsys.readouterr()
        assert code == 0, (words, shown.err)
        return shown.out

    assert type_commands(PAGES, tmp_path, typed) > 15
    rolled_back = (tmp_path / "my-agent" / "enhanced.yaml").read_text("utf-8")
    assert "score with the library" in rolled_back
    assert "What remains: Take away all full groups first." not in rolled_back
    db = sqlite3.connect(tmp_path / "my-agent" / "grpo-practice.db")
    with closing(db):
        for query in re.findall(r"```sql\n(.*?)```", DATABASE.read_text("utf-8"), re.DOTALL):
            assert db.execute(query).fetchall(), query


def test_the_verify_function_that_is_shown_takes_no_near_miss_for_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = re.findall(r"```python\n(def check\(.*?)```", README.read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UTU_LLM_MODEL", "sim")
    Path("score.py").write_text(text, "utf-8")
    assert run(["init", "."]) == 0
    assert (
        run(["data", "upload", "mine.jsonl", "--name", "mine", "--verify", "score.py:check"]) == 0
    )
    sets = ["--set", "evaluation.verify=score.py:check"]
    capsys.readouterr()
    run(["doctor", "--config", "practice.yaml", "--run", "--json", *sets])
    found = json.loads(capsys.readouterr().out)["findings"]
    tried = [one for one in found if one["about"] == "verify score.py:check"]
    assert [one["severity"] for one in tried] == ["ok"], tried
    words = ["--answer", "Canberra", "--response", "I think:\ncanberra\n", "--json"]
    assert run(["verify", "score.py:check", *words]) == 0
    assert json.loads(capsys.readouterr().out)["reward"] == 1
    few = ["--limit", "8", "--verify", "score.py:check", "--json"]
    assert run(["eval", "--config", "practice.yaml", "--dataset", "mine", *few]) == 0
    assert json.loads(capsys.readouterr().out)["score"]["mean"] > 0


def test_what_cannot_be_run_here_is_run_elsewhere() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for command in ELSEWHERE:
        assert command in commands(*PAGES)
        name = command.split()[1]
        assert command.startswith(("pip", "uv")) or re.search(rf"^{name}:", makefile, re.MULTILINE)
    assert set(commands(*PAGES)) > set(THERE)
    assert set(commands(WORKFLOWS)) == {*MATH, *WEB}  # by tests/workflows


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 250
    for page in (README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_command_of_every_page_has_options_that_exist() -> None:
    """Those in sentences, too; placeholders such as FILE stand for a value."""
    seen = 0
    for page in (README, *(ROOT / "docs").glob("*.md")):
        text = page.read_text("utf-8")
        blocks = "\n".join(re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.DOTALL))
        lines = [line.removeprefix("$ ") for line in blocks.replace("\\\n", " ").splitlines()]
        sentences = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        inline = re.findall(
            r"`(grpo-practice [^`]+ [^`]+)`", sentences
        )  # not the name of a command
        for line in (*lines, *inline):
            if line.startswith("grpo-practice "):
                words = shlex.split(re.split(r"  #| \| ", line)[0])[1:]
                words = ["1" if word in ("N", "STEP") else word for word in words]
                assert refusal(words) is None, (page.name, line, refusal(words))
                seen += 1
    assert seen > 100


@pytest.mark.long
def test_the_served_simulation_answers() -> None:
    (command,) = [c for c in commands(*PAGES) if "--serve" in c]
    words = command.replace("8377", "0").split()[1:]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "grpo_practice", *words], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split(" answers at ")[1].split()[0]
        port = int(url.split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)):
            server.terminate()
            server.communicate()


def test_the_world_on_the_page_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(\{\"seed.*?)```", PAGES[1].read_text("utf-8"), re.DOTALL)
    (tmp_path / "world.json").write_text(block)
    assert World.load(tmp_path / "world.json").fail.wrong == json.loads(block)["fail"]["wrong"]


def test_the_references_are_the_generated_ones() -> None:
    """`python -m tests.test_readme` writes them anew."""
    for page, reference in GENERATED.items():
        assert page.read_text("utf-8") == with_reference(page, reference())


def with_reference(page: Path, reference: str) -> str:
    text = page.read_text("utf-8")
    before, _, rest = text.partition("<!-- reference -->\n")
    _, _, after = rest.partition("<!-- /reference -->")
    return f"{before}<!-- reference -->\n{reference}<!-- /reference -->{after}"


def keywords_markdown() -> str:
    """The table of the keywords of all methods that play."""
    methods = dict[tuple[str, str], list[str]]()
    for kind in KINDS:
        for of in fields(kind):
            method = FORECASTS[kind.method] if of.name == "pilot" else kind.method
            methods.setdefault((of.name, of.metadata["text"]), []).append(method)
    every = [kind.method for kind in KINDS]
    rows = [
        f"| `{name}` | {'all' if of == every else ', '.join(of)} | {text} |\n"
        for (name, text), of in sorted(methods.items(), key=lambda row: row[1] != every)
    ]
    return "| keyword | of | |\n|---|---|---|\n" + "".join(rows)


GENERATED = {REFERENCE: reference_markdown, ROOT / "docs/python.md": keywords_markdown}


if __name__ == "__main__":
    for page, reference in GENERATED.items():
        page.write_text(with_reference(page, reference()), "utf-8")
