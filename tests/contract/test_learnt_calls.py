"""Practice on a task whose answers are always right: only a reward that sees the calls teaches."""

import json
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from grpo_practice import Workspace
from tests.contract.endpoint.simulated import respond
from tests.contract.project import Project, questions, served
from tests.contract.test_tools_servers import kit

WORLD = {"task": "calls", "seed": 2}
"""The student knows each answer, but records it wrong, or twice, unless experiences help."""
RULES = {
    "name": "tool_calls",
    "required": ["record"],
    "at_most": {"record": 1},
    "arguments": {"record": {"number": "{answer}"}},
}


class Recording(Project):
    """A project with forty questions to practise on and forty to be tested on."""

    @override
    def fill(self) -> None:
        made = questions(80)
        for name, rows in (("train", made[:40]), ("test", made[40:])):
            Workspace(self.db).datasets.upload(name, rows)


@pytest.mark.long
async def test_practice_learns_from_calls_and_not_from_answers(tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    world.write_text(json.dumps(WORLD))
    project = Recording(tmp_path / "p")

    def hook(n: int, body: dict[str, Any]) -> Any:
        return respond("/v1/chat/completions", json.dumps(body).encode(), world)

    async with served(hook) as endpoint:
        agent = {"max_turns": 5, "toolkits": kit("well")}

        async def practised(exp_id: str, verify: Any) -> Any:
            """Return (mean reward in practice, number of experiences)."""
            chosen = {"evaluation.verify": verify, "exp_id": exp_id, "practice.batch_size": 20}
            more = {f"evaluation.agent.{key}": value for key, value in agent.items()}
            told = [f"{k}={json.dumps(v)}" for k, v in (chosen | more).items()]
            await project.practise(*told, endpoint.override())
            found = Workspace(project.db).experiences(exp_id)
            rewards = "SELECT avg(reward) FROM v_rollouts WHERE run_id = ?"
            return project.query(rewards, exp_id)[0][0], len(found.document()["experiences"])

        async def score(library: str | None) -> float:
            """Return the share of rollouts on the test questions that keep the rules."""
            report = await project.evaluate(run="calls", config=None, library=library, pass_k=3)
            return float(report.score.mean)

        mean, learnt = await practised("calls", RULES)
        assert await practised("text", "math") == (1.0, 0), "all attempts look alike"
        without, with_calls, with_text = [
            await score(library) for library in (None, "calls", "text")
        ]
    assert 0.4 < mean < 0.9
    assert learnt >= 5
    assert with_calls > without + 0.1
    assert with_text == without
