"""The JSON documents of the commands that export."""

import json

import pytest

from grpo_practice import Workspace
from tests.contract.command import Gp
from tests.contract.documented import fails_with_a_document, prints_one_document

DB = "grpo-practice.db"
WORDS = {
    "export": ("export-agent",),
    "export to a file": ("export-agent", "-o", "my agent.yaml"),
    "export to stdout": ("export-agent", "-o", "-", "--format", "md"),
    "runs export": ("runs", "export", "demo", "-o", "its rows.csv"),
    "export-data": ("export-data", "demo:0", "--format", "dpo", "-o", "my pairs.jsonl"),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_the_document_is_all_there_is_and_its_next_command_works(
    demo: Gp, words: tuple[str, ...]
) -> None:
    prints_one_document(demo, words)


def test_a_failure_is_a_document_too(demo: Gp) -> None:
    fails_with_a_document(demo, ("export-agent", "--run", "nobody"))


def test_it_is_the_report_of_the_python_api(demo: Gp) -> None:
    document = json.loads(json.dumps(Workspace(DB).export().document()))
    assert demo("export-agent", "--json").document == document


def test_the_exported_agent_comes_with_its_scores(demo: Gp) -> None:
    document = demo("export-agent", "--json").document
    runs = {name: document[name]["run"] for name in ("before", "after")}
    assert runs["before"] == "demo/eval"
    assert runs["after"].startswith("demo/eval/L")
    (text,) = document["files"].values()
    assert text == demo("export-agent").out
    exported = Workspace(DB).export()
    assert exported.before is not None
    assert exported.before.score.mean == document["before"]["score"]["mean"]
    assert "score without the library: " in repr(exported)
    assert exported.text == text
