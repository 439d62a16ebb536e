"""Requests of a rollout: one, unless the agent has tools; then nobody knows before."""

from dataclasses import dataclass

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.forecast.range import Range, around
from grpo_practice.store import Store
from grpo_practice.store.queries import spending
from grpo_practice.store.queries.spending import ENOUGH
from grpo_practice.store.records import RunSpec

ASSUMED_MOST = 50
"""Most requests assumed of an agent of the user's own, where none was played yet."""


@dataclass(frozen=True, slots=True)
class RolloutRequests:
    """Requests of one rollout, and what that rests on."""

    each: Range
    rollouts: int
    """Rollouts in which they were counted; 0: `each` goes from one to what the agent may take."""


def rollout_requests(
    store: Store, spec: RunSpec, agent: AgentConfig, to_come: float
) -> RolloutRequests | None:
    """Return what rollouts of this agent took so far, in any run; None where that is always one.

    Args:
        store: The database.
        spec: The run; its identity says what the agent is.
        agent: The agent of its config.
        to_come: How many rollouts are still to be played.
    """
    if agent.type == "simple" and not agent.toolkits:
        return None
    most = agent.max_turns + 1 if agent.type == "simple" else ASSUMED_MOST
    played, mean, spread = store.read(spending.turns, spec.identity)
    if not played:
        return RolloutRequests(Range(1, most), 0)
    few = Range(mean / 2, mean * 2)
    each = few if played < ENOUGH else around(mean, spread, played, to_come)
    return RolloutRequests(Range(max(each.low, 1.0), max(min(each.high, most), 1.0)), played)
