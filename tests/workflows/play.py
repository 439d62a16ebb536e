"""The two published workflows: their commands, as the page has them, and data of their shapes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_practice.core.types import Sample
from grpo_practice.sim.questions import questions
from tests.data.hub.made import REPOS, afm, aime, dapo, webwalker
from tests.data.hub.server import Hub
from tests.workflows.desk import Desk
from tests.workflows.services import Services

MATH = (
    "grpo-practice data download DAPO-Math-17k",
    "grpo-practice data download AIME24",
    "grpo-practice data download AIME25",
    "grpo-practice eval --config math/math_AIME24",
    "grpo-practice eval --config math/math_AIME25",
    "grpo-practice practice --config math_reasoning",
    "grpo-practice export-agent --run math_practice -o math_practice_agent.yaml",
    "grpo-practice eval --config math/math_AIME24 --agent math_practice_agent.yaml",
    "grpo-practice eval --config math/math_AIME25 --agent math_practice_agent.yaml",
)
WEB = (
    "grpo-practice data download AFM_web_RL",
    "grpo-practice data download WebWalkerQA",
    "grpo-practice eval --config web/web",
    "grpo-practice practice --config web_search",
    "grpo-practice export-agent --run web_practice -o web_practice_agent.yaml",
    "grpo-practice eval --config web/web --agent web_practice_agent.yaml",
)
LEVELS = ("easy", "medium", "hard")


def publish(hub: Hub) -> None:
    """The hub has the five datasets, with questions of the simulated world, none of them twice."""
    made = questions(56, seed=3)
    parts = {"AIME24": made[:10], "AIME25": made[10:16], "WebWalkerQA": made[16:26]}
    hub.add(REPOS["DAPO-Math-17k"], dapo(_pairs(made[26:46])))
    for name in ("AIME24", "AIME25"):
        hub.add(REPOS[name], aime(_pairs(parts[name])))
    hub.add(REPOS["AFM_web_RL"], afm([(q, [a]) for q, a in _pairs(made[46:])]))
    walks = [(q, a, LEVELS[i % 3]) for i, (q, a) in enumerate(_pairs(parts["WebWalkerQA"]))]
    hub.add(REPOS["WebWalkerQA"], webwalker(walks))


def _pairs(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    return [(s.question, str(s.answer)) for s in samples]


@dataclass
class Played:
    """A workflow from its first command to its last."""

    desk: Desk
    reports: dict[str, Any] = field(default_factory=dict)
    """By command: its JSON, where it has one."""
    asked: dict[str, dict[str, int]] = field(default_factory=dict)
    """By command: what the services were asked for it."""

    def score(self, command: str) -> float:
        return float(self.reports[command]["score"]["mean"])


def play(desk: Desk, commands: Sequence[str]) -> Played:
    """Every command was typed once, and ended well."""
    played, before = Played(desk), desk.services.asked()
    for command in commands:
        if " export-agent " in command:
            desk.type(command)
        else:
            played.reports[command] = desk.json(command)
        after = desk.services.asked()
        played.asked[command] = {
            name: n - before.get(name, 0) for name, n in after.items() if n > before.get(name, 0)
        }
        before = after
    return played


@dataclass
class Killed:
    """A practice that was killed in the middle of its trajectories, and typed again."""

    stored: dict[str, int]
    """Answered calls that were stored when it was killed: by stage, and tools by name."""
    cut: int
    """Trajectories that had called a tool and had not ended."""
    in_flight: int
    """Requests whose answer was not stored."""
    paid_twice: int
    """Requests of both commands together, beyond the calls that are stored at the end."""
    report: Any
    """What the second command says."""


def kill(desk: Desk, commands: Sequence[str], tool_calls: int = 30) -> Killed:
    """Practice was killed when so many tool calls were stored, and then typed again."""
    practice = next(c for c in commands if " practice " in c)
    desk.kill_when(practice, lambda desk: _of_tools(desk.calls()) >= tool_calls)
    in_flight = _settled(desk.services) - billed(desk)
    stored, cut = desk.calls(), desk.query(_CUT)[0][0]
    report = desk.json(practice)
    return Killed(stored, cut, in_flight, _all(desk.services) - billed(desk), report)


_CUT = """
SELECT count(*) FROM (
  SELECT step, slot, attempt FROM calls WHERE stage = 'tool'
  EXCEPT SELECT step, slot, attempt FROM rollouts
)"""


def fetch(desk: Desk, commands: Sequence[str]) -> None:
    """The data of a workflow was downloaded."""
    publish(desk.services.hub)
    for command in commands:
        if " data " in command:
            desk.type(command)


def billed(desk: Desk) -> int:
    """How many requests the stored calls took: Python code runs here, and asks nobody."""
    return sum(n for name, n in desk.calls().items() if name != "execute_python_code")


def _of_tools(calls: dict[str, int]) -> int:
    return sum(calls.get(name, 0) for name in ("execute_python_code", "search", "web_qa"))


def _all(services: Services) -> int:
    return sum(services.asked().values())


def _settled(services: Services) -> int:
    """Requests in all, once those have come in that were under way when their sender was killed."""
    seen, now = -1, _all(services)
    while seen < now:
        time.sleep(0.3)
        seen, now = now, _all(services)
    return now
