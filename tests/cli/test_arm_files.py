"""`eval --arms` with files that a person edits."""

import re
from pathlib import Path

from tests.cli.conftest import Gp
from tests.cli.test_arms import arms, asked
from tests.cli.test_next_commands import next_words


def test_a_changed_agent_file_is_another_arm(demo: Gp) -> None:
    words, text = ("eval", "--arms", "none,pa.yaml"), Path("agent.yaml").read_text("utf-8")
    Path("pa.yaml").write_text(text, "utf-8")
    first = arms(demo, *words)
    assert first["pa.yaml"] == "demo/eval/pa"
    Path("pa.yaml").write_text(text.replace("Solve the", "Solve this"), "utf-8")
    before = asked()
    ran = demo(*words)
    assert ran.code == 0, ran.err
    assert "complete, and not played again together with the others: demo/eval (" in ran.err
    assert asked() - before == 80
    (edited,) = re.findall(r"demo/eval/pa@[0-9a-f]{6}", ran.out)[:1]
    assert f"pa.yaml has changed since demo/eval/pa was played: this is {edited}" in ran.err
    assert demo(*next_words(ran.out)).code == 0
    # Each text of the file keeps its run, whatever was played in between.
    assert arms(demo, *words)["pa.yaml"] == edited
    assert demo("eval", "--agent", "pa.yaml", "--json").document["run"] == edited
    assert demo("runs", "compare", "demo/eval/pa", edited).code == 0
    Path("pa.yaml").write_text(text, "utf-8")
    assert arms(demo, *words) == first
    assert demo("eval", "--agent", "pa.yaml", "--json").document["run"] == first["pa.yaml"]
    assert asked() - before == 80


def test_an_agent_file_that_was_never_answered_keeps_its_name(demo: Gp) -> None:
    text = Path("agent.yaml").read_text("utf-8")
    Path("pa.yaml").write_text(text.replace("Solve the", "Solve a"), "utf-8")
    paused = demo("eval", "--agent", "pa.yaml", "--run", "demo", "--max-requests", "0")
    assert paused.code == 6, paused.err
    Path("pa.yaml").write_text(text.replace("Solve the", "Solve this"), "utf-8")
    ran = demo("eval", "--agent", "pa.yaml", "--run", "demo", "--json")
    assert ran.document["run"] == "demo/eval/pa"
