"""Findings about the answers of a run and the reliability of its scores."""

from collections.abc import Iterable, Mapping
from shlex import quote

from grpo_practice.core.calls import UNASKED
from grpo_practice.core.findings import Finding, counted, failure, warning
from grpo_practice.core.text import brief, count
from grpo_practice.store.queries.run_health import Health as Health

NAMED = 3
"""Maximum number of model names in a finding; some endpoints name another in every reply."""
NAME = 80
"""Maximum number of characters shown from a model name."""


SOME = 0.05
"""Minimum share of answers that ended badly, or were scored differently, for a finding."""
LIMIT = "agent.model.model_settings.max_tokens"
"""Key that limits the length of an answer in an evaluation."""
LIMITS = {"practice": f"evaluation.{LIMIT}", "train": "train.max_output_tokens"}
"""Kind of run → this key in the configs of other runs."""
_ENDINGS: Mapping[str, tuple[str, str]] = {
    "truncated": ("ran out of tokens", "raise {limit}"),
    "empty": (
        "are empty",
        "raise {limit}, or check what the endpoint or your program returns instead of text",
    ),
    "refused": ("are refusals", "reword the agent's instructions, or choose another model"),
    "content_filter": (
        "were withheld by a content filter",
        "choose another model or endpoint",
    ),
    "context_overflow": (
        "did not fit into the model's context",
        "serve it with a larger context, lower {limit} or shorten the instructions",
    ),
}
"""Outcome of an answer that ended badly → description, and the setting to change."""


def answer_findings(
    run: str,
    outcomes: Mapping[str, int],
    means: Iterable[float | None] | None,
    health: Health,
    limit: str = LIMIT,
) -> list[Finding]:
    """Return findings on badly ended answers and on reasons why scores may not be reproducible.

    Args:
        run: Name of the run.
        outcomes: Number of the run's rollouts per outcome.
        means: Mean rewards of its steps, or its score; None before all rollouts are scored.
        health: Health of the run.
        limit: Key that limits the length of an answer.
    """
    found = [] if means is None else no_answer(run, outcomes, means, limit)
    # If no rollout gave an answer, the shares of each ending would only repeat it.
    found = found or _endings(run, outcomes, limit)
    if n := health.mute:
        text = f"{count(n, 'answer')} never began because reasoning used up all tokens"
        found.append(warning("reasoning", text, f"raise {limit}"))
    if n := health.unasked:
        text = f"{count(n, 'answer')} came without any request to the rollout's address"
        found.append(warning("agent", text, UNASKED))
    found += [
        warning("not reproducible", reason, command=command.format(run=quote(run)))
        for reason, command in _voids(health)
    ]
    return found + [warning("model", text) for text in _aliases(health)]


def no_answer(
    run: str, outcomes: Mapping[str, int], means: Iterable[float | None], limit: str = LIMIT
) -> list[Finding]:
    """Return a problem if all rewards are 0 because no rollout produced an answer."""
    answers = {name: n for name, n in outcomes.items() if name in _ENDINGS}
    if not answers or "ok" in outcomes or any(means):
        return []
    name, n = max(answers.items(), key=lambda item: item[1])
    of = sum(outcomes.values())
    what, hint = _ENDINGS[name]
    text = f"no rollout gave an answer, so the rewards are meaningless: {n} of {of} {what}"
    look = f"grpo-practice rollouts show {quote(run)}"
    return [failure("answers", text, hint.format(limit=limit), look, (n, of))]


def _endings(run: str, outcomes: Mapping[str, int], limit: str) -> list[Finding]:
    of = sum(n for name, n in outcomes.items() if not name.startswith("error"))
    if not of:
        return []
    look = f"grpo-practice rollouts list {quote(run)} --failed"
    counts = {name: outcomes.get(name, 0) for name in _ENDINGS}
    return [
        counted(
            name.replace("_", " "),
            (n, of),
            f"{n:,} of {of:,} answers {what}",
            hint.format(limit=limit),
            look,
            n > SOME * of,
        )
        for name, n in counts.items()
        for what, hint in [_ENDINGS[name]]
    ]


def share_of(name: str, outcomes: Mapping[str, int]) -> float | None:
    """Return the share of the answers with this outcome; None if there are no answers."""
    answers = sum(n for name, n in outcomes.items() if not name.startswith("error"))
    return outcomes.get(name, 0) / answers if answers else None


def voided_by(health: Health) -> list[str]:
    """Return the reasons why a second run with the same plan and configuration may differ."""
    return [reason for reason, _ in _voids(health)]


def _voids(health: Health) -> list[tuple[str, str]]:
    """Return each of these reasons with the command that tells more about it.

    A cap that paused the run is not a reason once the run has resumed, because the delayed requests
    went to the same address with the same seed.
    """
    failed = "grpo-practice rollouts list {run} --failed"
    diagnose = "grpo-practice runs diagnose {run}"
    reasons = [
        (health.timed_out, "rollout", "timed out", failed),
        (health.lost, "rollout", "got no reward because of an error", failed),
        (health.untaught, "comparison", "failed because a request got no answer", diagnose),
        (
            health.seedless,
            "reply",
            "requested without a seed, because the endpoint does not accept one or send_seed is"
            " off",
            "grpo-practice doctor",
        ),
    ]
    plural = {"reply": "replies"}
    return [
        (f"{n} {noun if n == 1 else plural.get(noun, noun + 's')} {what}", command)
        for n, noun, what, command in reasons
        if n
    ]


def _aliases(health: Health) -> list[str]:
    """Return a sentence for each requested model whose replies named other models."""
    found = []
    for asked, by in health.answered_by.items():
        # `model@host`: the requested model itself is not an alias, whatever its host.
        if len(by) == 1 and next(iter(by)).rpartition("@")[0] == asked:
            continue
        some = [f"{brief(name, NAME)} ({n})" for name, n in list(by.items())[:NAMED]]
        more = [f"{len(by) - NAMED} others"] if len(by) > NAMED else []
        found.append(f"{asked} was answered by {', '.join([*some, *more])}")
    return found
