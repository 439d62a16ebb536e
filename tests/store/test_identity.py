"""One module knows what the keys of a stored identity mean."""

import ast
import re
from pathlib import Path

import pytest

from grpo_practice.practice import METHOD
from grpo_practice.store import identity as of_store
from grpo_practice.store.identity import (
    agent_of,
    has_own_agent,
)

ROOT = Path(__file__).parents[2] / "src/grpo_practice"
READERS = [
    path
    for room in ("store", "reports")
    for path in sorted((ROOT / room).rglob("*.py"))
    # The keys of the next three are advice for a person; the last one names parts of an agent.
    if path.name
    not in (
        *("identity.py", "answer_findings.py", "learning_findings.py", "run_diagnosis.py"),
        "export_report.py",
    )
]
KEY = re.compile(r"(evaluation\.)?(agent|practice|verify)\.[a-z_.0-9]*")


def keys(source: str) -> list[str]:
    """Return every key of an identity that stands in a source text."""
    return [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if KEY.fullmatch(node.value.strip("$.\"'"))
    ]


def test_no_other_module_reads_a_key_of_an_identity() -> None:
    read = {str(path.relative_to(ROOT)): keys(path.read_text("utf-8")) for path in READERS}
    found = {name: of_file for name, of_file in read.items() if of_file}
    assert found == {}, "give store/identity.py a function that says what the key means"


def test_each_method_is_said_in_words_where_a_run_of_another_one_is_refused() -> None:
    assert of_store._METHODS.keys() == set(range(1, METHOD + 1))


def test_a_key_is_seen() -> None:
    assert keys("identity['practice.method']") == ["practice.method"]


@pytest.mark.parametrize("at", ["", "evaluation."])
def test_an_agent_is_the_same_in_a_practice_run_and_in_its_evaluation(at: str) -> None:
    identity = {f"{at}agent.type": "python", f"{at}agent.function": "a.py:f", "practice.epochs": 1}
    assert agent_of(identity) == {"agent.type": "python", "agent.function": "a.py:f"}
    assert has_own_agent(identity)
    assert not has_own_agent({f"{at}agent.type": "simple"})
