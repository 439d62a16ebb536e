"""Parts that several JSON documents have: scores, tokens, money, requests."""

from collections.abc import Mapping

from grpo_practice.calls import Usage
from grpo_practice.stats import Score
from grpo_practice.store.queries.scores import Requests
from grpo_practice.text import count
from grpo_practice.types import MeanOver

MEAN_OVER: Mapping[MeanOver, str] = {
    "all": "all rollouts",
    "weighted": "all rollouts, twice those of groups that might have been left out",
}
"""Names of the rollouts that a mean reward is over."""


def unscorable_count(score: Score) -> str:
    """Count the questions that cannot be scored, in words; empty where all can be."""
    if not score.questions_unscorable:
        return ""
    total = count(score.questions + score.questions_unscorable, "question")
    return f"{score.questions_unscorable} of {total} cannot be scored"


def usage_document(usage: Usage) -> dict[str, int | None]:
    """Return tokens; null where the endpoint did not say."""
    return {
        "in": usage.tokens_in,
        "cached": usage.tokens_cached,
        "out": usage.tokens_out,
        "reasoning": usage.tokens_reasoning,
    }


def cost_usd(usage: Usage) -> float | None:
    """Return the cost in dollars; None while prices are unknown."""
    return usd(usage.cost_micro)


def cost_text(usage: Usage) -> str:
    """Format the cost of calls in dollars; `unknown` if a call has no price."""
    cost = cost_usd(usage)
    return "unknown" if cost is None else f"${cost:.6f}"


def usd(micro: int | None) -> float | None:
    """Return dollars of micro-dollars; None while prices are unknown."""
    return None if micro is None else micro / 1e6


def requests_document(requests: Requests, replayed: int) -> dict[str, int]:
    """Return the requests of this invocation."""
    return {"new": requests.new, "replayed": replayed, "failed": requests.failed}
