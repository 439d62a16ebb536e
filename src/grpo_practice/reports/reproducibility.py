"""The meaning of a run's health for its numbers, in words and as part of its document."""

from collections.abc import Iterable, Mapping
from typing import Any

from grpo_practice.store.queries.run_health import Health as Health
from grpo_practice.text import brief

NAMED = 3
"""Models that a note names; an endpoint may call itself something else in every reply."""
NAME = 80
"""Characters of such a name."""


ENDINGS: Mapping[str, str] = {
    "truncated": "ran out of tokens: raise max_tokens",
    "empty": "are empty: raise max_tokens, or see what the endpoint or your program returns"
    " in place of text",
    "refused": "are refusals: reword the agent's instructions, or choose another model",
    "content_filter": "were withheld by a content filter: choose another model or endpoint",
    "context_overflow": "did not fit into the model's context: serve it with a larger one, lower"
    " max_tokens or shorten the instructions",
}
"""Outcome of an answer that did not end well → what happened, and what to change."""


def unanswered(outcomes: Mapping[str, int], means: Iterable[float | None]) -> str | None:
    """Return why no rollout gave an answer, though all have a reward of 0; else None.

    Args:
        outcomes: Rollouts by how they ended.
        means: Mean rewards of the parts that they were scored in.
    """
    answers = {name: n for name, n in outcomes.items() if name in ENDINGS}
    if not answers or "ok" in outcomes or any(means):
        return None
    name, n = max(answers.items(), key=lambda item: item[1])
    return f"no rollout gave an answer: {n} of {sum(outcomes.values())} {ENDINGS[name]}"


def share_of(name: str, outcomes: Mapping[str, int]) -> float | None:
    """Return the share of the answers that ended so; None without any answer."""
    answers = sum(n for name, n in outcomes.items() if not name.startswith("error"))
    return outcomes.get(name, 0) / answers if answers else None


def voided_by(health: Health) -> list[str]:
    """Return why a second run may differ, though plan and configuration are the same.

    A cap that paused the run is no reason, once the run has gone on: what it held back was asked
    afterwards, at the same address and with the same seed.
    """
    counted = [
        (health.timed_out, "rollout", "ended by time"),
        (health.lost, "rollout", "without a reward for an error"),
        (health.untaught, "comparison", "failed for a request without an answer"),
        (
            health.seedless,
            "reply",
            "asked for without a seed: the endpoint does not take one, or send_seed is off",
        ),
    ]
    plural = {"reply": "replies"}
    return [
        f"{n} {noun if n == 1 else plural.get(noun, noun + 's')} {what}"
        for n, noun, what in counted
        if n
    ]


def notes(health: Health) -> list[str]:
    """Return who really answered, where it is not simply the model that was asked."""
    found = []
    for asked, by in health.answered_by.items():
        if len(by) == 1 and next(iter(by)).rpartition("@")[0] == asked:
            continue
        some = [f"{brief(name, NAME)} ({n})" for name, n in list(by.items())[:NAMED]]
        more = [f"{len(by) - NAMED} others"] if len(by) > NAMED else []
        found.append(f"{asked} was answered by {', '.join([*some, *more])}")
    return found


def health_document(health: Health) -> dict[str, Any]:
    """Return the parts of a document that say how far its numbers can be trusted."""
    reasons = voided_by(health)
    return {
        "failed_requests": dict(health.unanswered),
        "retried_requests": health.retried,
        "answers_without_a_request": health.unasked,
        "reproducible": {"holds": not reasons, "reasons": reasons, "notes": notes(health)},
    }
