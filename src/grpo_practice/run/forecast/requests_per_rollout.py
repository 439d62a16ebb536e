"""Requests per rollout: always one for an agent without tools, otherwise measured or assumed."""

from dataclasses import dataclass

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.run.forecast.range import Range, around
from grpo_practice.store import Store
from grpo_practice.store.queries import spending
from grpo_practice.store.queries.spending import ENOUGH
from grpo_practice.store.records import RunSpec

ASSUMED_MOST = 50
"""Upper bound assumed for a user's own agent that has played no rollout yet."""


@dataclass(frozen=True, slots=True)
class RolloutRequests:
    """Number of requests per rollout, and the evidence for it."""

    each: Range
    rollouts: int
    """Number of rollouts in which requests were counted; if 0, `each` ranges from one to the
    agent's limit.
    """


def rollout_requests(
    store: Store, spec: RunSpec, agent: AgentConfig, to_come: float
) -> RolloutRequests | None:
    """Return the requests per rollout of this agent so far, in any run; None if always one.

    Args:
        store: The database.
        spec: The run; its identity specifies the agent that plays.
        agent: Agent in the run's configuration.
        to_come: Number of rollouts still to be played.
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
