"""With `--json` a command prints the document of its report, and nothing else on stdout."""

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_practice import Workspace
from tests.contract.command import Gp
from tests.contract.documented import fails_with_a_document, prints_one_document
from tests.contract.help import commands, usage

DB = "grpo-practice.db"


def test_every_command_but_the_demo_has_it() -> None:
    lacking = {words for words in commands() if "--json" not in usage(*words).options}
    assert lacking == {("demo",)}, "what it prints is the document of a report"


WORDS = {
    "init": ("init", "new folder"),
    "config show": ("config", "show"),
    "config validate": ("config", "validate", "--config", "practice.yaml"),
    "db backup": ("db", "backup", "a copy.db"),
    "data delete": ("data", "delete", "test", "--yes"),
    "rollouts list": ("rollouts", "list", "demo", "--flipped"),
    "rollouts show": ("rollouts", "show", "demo:0", "--failed", "--limit", "1"),
    "experiences diff": ("experiences", "diff", "demo:0", "demo"),
    "experiences remove": ("experiences", "remove", "E2"),
    "experiences edit": ("experiences", "edit", "E2", "--text", "Units: name them first."),
    "runs diagnose": ("runs", "diagnose", "demo"),
    "runs compare": ("runs", "compare", "demo/eval", "demo"),
    "runs delete": ("runs", "delete", "demo", "--yes"),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_the_document_is_all_there_is_and_its_next_command_works(
    demo: Gp, words: tuple[str, ...]
) -> None:
    prints_one_document(demo, words)


def test_it_is_the_report_of_the_python_api(demo: Gp) -> None:
    ws = Workspace(DB)

    def plain(document: dict[str, Any]) -> Any:
        return json.loads(json.dumps(document))

    assert demo("config", "show", "--json").document == plain(ws.configuration().document())
    made = demo("db", "backup", "one.db", "--json").document
    assert made == plain(ws.backup("one.db", replace=True).document()) | {"bytes": made["bytes"]}
    demo("data", "split", "test")
    gone = demo("data", "delete", "test-test", "--yes", "--json").document
    assert gone["dataset"]["name"] == "test-test"
    assert plain(ws.datasets.delete("test-train").document())["dataset"]["name"] == "test-train"
    runs = {run["name"] for run in demo("runs", "list", "--json").document["runs"]}
    deleted = ws.delete_run("demo").document()["runs"]
    assert runs - set(deleted) == {"demo/eval"}
    assert [run.name for run in ws.runs().runs] == ["demo/eval"]


def test_a_configuration_is_in_the_document_as_it_is_printed(demo: Gp) -> None:
    printed = yaml.safe_load(demo("config", "show").out)
    assert demo("config", "show", "--json").document["settings"] == printed


@pytest.mark.parametrize(
    "words",
    [
        ("init",),
        ("config", "show", "--config", "nowhere"),
        ("config", "validate", "--set", "practice.epochs=x"),
        ("db", "backup", DB),
        ("db", "backup", "-"),
        ("data", "delete", "nothing", "--yes"),
        ("data", "delete", "test"),
        ("runs", "delete", "nobody", "--yes"),
    ],
    ids=" ".join,
)
def test_a_failure_is_a_document_too(demo: Gp, words: tuple[str, ...]) -> None:
    fails_with_a_document(demo, words)


def test_somebody_who_does_not_agree_gets_a_document(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard = io.StringIO("n\n")
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", keyboard)
    ran = demo("runs", "delete", "demo", "--json")
    assert (ran.code, ran.document["kind"]) == (1, "declined")
    assert ran.err.endswith("nothing was changed\n")


def test_init_says_in_its_document_what_to_type(gp: Gp, monkeypatch: pytest.MonkeyPatch) -> None:
    document = gp("init", "my task", "--json").document
    said = gp("init", "my task", "--force").out
    assert [line.removeprefix("next: ") for line in said.splitlines() if "next: " in line] == (
        document["next"]
    )
    assert all(Path(name).is_file() for name in document["files"])
    monkeypatch.chdir("my task")
    Path(".env").write_text("UTU_LLM_MODEL=sim\n", "utf-8")
    for command in document["next"][2:]:
        assert gp(*shlex.split(command)[1:]).code == 0


def test_a_copy_of_the_database_is_no_stream(demo: Gp) -> None:
    for words in (("db", "backup", "-"), ("db", "backup", "-", "--force")):
        ran = demo(*words)
        assert ran.code == 2
        hint = ran.err.split("hint: name a file: ")[1]
        assert not Path("-").exists()
    assert demo(*shlex.split(hint)[1:]).code == 0
    assert demo("runs", "list", "--db", "-").code == 2
    assert demo("data", "upload", "test.jsonl", "--name", "x", "--db", "-").code == 2
    assert not Path("-").exists()
