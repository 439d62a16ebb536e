"""Hints lead on: whoever follows `next:` from any command never comes back to where they were."""

import pytest

from tests.contract.command import Gp

STARTS = (
    "runs list",
    "runs show demo",
    "runs show demo/eval",
    "runs diagnose demo",
    "runs compare demo/eval demo",
    "rollouts list demo",
    "rollouts list demo/eval --failed",
    "rollouts list demo --flipped",
    "rollouts list demo --question 3",
    "rollouts show demo",
    "rollouts show demo/eval --question 2",
    "experiences list --run demo",
    "experiences list --run demo --quarantined",
    "experiences show E1 --run demo",
    "experiences diff demo:0 demo",
    "data list",
    "data show test",
    "eval --run demo",
    "eval --arms none,full --run demo",
    "practice --config practice.yaml",
    "export-agent --run demo -o first.yaml",
    "report demo",
    "db backup copy.db",
)
"""Commands of a finished project, in which nothing is left to play."""


@pytest.mark.long
def test_no_hint_leads_back_to_where_it_came_from(demo: Gp) -> None:
    known = dict[str, list[str]]()

    def following(command: str) -> list[str]:
        if command not in known:
            ran = demo(*command.split())
            assert ran.code == 0, (command, ran.err)
            known[command] = [
                " ".join(line.partition("next: grpo-practice ")[2].split())
                for line in f"{ran.out}\n{ran.err}".splitlines()
                if line.startswith("next: grpo-practice ")
            ]
        return known[command]

    def walk(command: str, path: tuple[str, ...]) -> None:
        assert command not in path, " → ".join((*path, command))
        for after in following(command):
            walk(after, (*path, command))

    for start in STARTS:
        walk(start, ())
    assert len(known) > len(STARTS)
