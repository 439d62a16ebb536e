"""The JSON export is complete and exact."""

import json

from hypothesis import given

from grpo_practice.core.prompts.system import library_sha
from tests.reports.rendered import render
from tests.reports.sample import AGENT, HOSTILE, LIBRARY, agent


def test_the_document_has_all_there_is_to_know() -> None:
    document = json.loads(render(AGENT, "json"))
    after = document.pop("after")
    assert (after["run"], after["dataset"], after["mean"]) == ("m/eval/L1", "test", 0.75)
    assert (after["questions"], after["rollouts"]) == (2, {"planned": 8, "scored": 7})
    assert document == {
        "schema": "grpo-practice.agent/1",
        "name": "solver",
        "system_prompt": AGENT.system_prompt,
        "instructions": AGENT.instructions,
        "experiences": [
            {"id": "E1", "text": "Check: Recompute the sum."},
            {"id": "E4", "text": "Ünits: Keep."},
        ],
        "model": {
            "type": "chat.completions",
            "name": "model-a",
            "base_url": None,
            "settings": {"temperature": 0.3, "extra_args": {"timeout": 3000}},
        },
        "toolkits": {},
        "max_turns": 50,
        "provenance": {
            "run": "m",
            "branch": 1,
            "step": 3,
            "library": "L7",
            "library_sha256": library_sha(LIBRARY).hex(),
            "simulated": False,
            "left_out": [],
        },
        "before": None,
        "difference": None,
    }


@given(HOSTILE)
def test_the_prompt_is_exact_and_nothing_is_hidden(text: str) -> None:
    exported = agent(instructions=text)
    file = render(exported, "json")
    assert json.loads(file)["system_prompt"] == exported.system_prompt
    assert not {"\x1b", "\x7f", "\x9b", "\u202e", "\u2028"} & set(file)


def test_other_scripts_stay_readable() -> None:
    assert "例题　😀" in render(agent(instructions="例题　😀"), "json")
