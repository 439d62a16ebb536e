"""Failures and costs in reports on the terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grpo_practice.cli.terminal.formatting import cached_share, count, say, tokens
from grpo_practice.cli.terminal.tables import table
from grpo_practice.core.calls import NO_USAGE
from grpo_practice.core.text import brief

if TYPE_CHECKING:
    from grpo_practice.reports.answer_findings import Health
    from grpo_practice.reports.run_reports import EvalReport, PracticeReport
    from grpo_practice.reports.stored_runs import StageCost

LINE = 160
"""Maximum length of an error."""
NAMED = 3
"""Maximum number of models without a price that are listed."""


def trouble(report: "EvalReport | PracticeReport") -> list[tuple[str, str]]:
    """Return the outcomes of rollouts without an answer, with errors and retries."""
    return [
        ("outcomes", _outcomes(report.outcomes)),
        ("errors", _errors(report.failures)),
        ("retries", retries(report.health)),
    ]


def _outcomes(outcomes: Mapping[str, int]) -> str:
    ordered = sorted(outcomes.items(), key=lambda item: -item[1])
    return ", ".join(f"{n} {name}" for name, n in ordered if name != "ok")


def _errors(failures: Mapping[str, int]) -> str:
    if not failures:
        return ""
    error, n = next(iter(failures.items()))
    others = len(failures) - 1
    times = "once" if n == 1 else f"{n} times"
    return f"{times} {brief(error, LINE)}" + (f"; and {count(others, 'other')}" if others else "")


def retries(health: "Health") -> str:
    """Return the number of requests that were retried, and of requests never answered."""
    parts = []
    if health.retried:
        parts.append(f"{count(health.retried, 'request')} answered only after a retry")
    if health.unanswered:
        kinds = ", ".join(f"{n} {brief(kind, LINE)}" for kind, n in health.unanswered.items())
        billed = f", {health.maybe_paid} of them possibly billed" if health.maybe_paid else ""
        given_up = count(sum(health.unanswered.values()), "request")
        parts.append(f"{given_up} given up ({kinds}){billed}")
    return "; ".join(parts)


def shrunk_groups(health: "Health") -> str:
    """Return `3 of 5 attempts count in 4 groups` for each group size."""
    sizes = dict[tuple[int, int], int]()
    for s in health.shrunk:
        sizes[s.planned, s.scored] = sizes.get((s.planned, s.scored), 0) + s.groups
    return "; ".join(
        f"{scored} of {planned} attempts count in {count(groups, 'group')}"
        for (planned, scored), groups in sorted(sizes.items(), reverse=True)
    )


def costs(report: "EvalReport | PracticeReport") -> list[tuple[str, str]]:
    """Return requests, tokens and dollars, or `unknown`."""
    usage, requests = report.usage, report.requests
    asked = usage != NO_USAGE or report.unpriced
    tokens_in, tokens_out = (usage.tokens_in, usage.tokens_out) if asked else (0, 0)
    share = cached_share(usage.tokens_in, usage.tokens_cached)
    cached = f" ({tokens(usage.tokens_cached)} cached, {share})" if share else ""
    thinking = f" ({tokens(usage.tokens_reasoning)} reasoning)" if usage.tokens_reasoning else ""
    return [
        (
            "requests",
            f"{requests.new} new, {report.replayed} replayed from the file,"
            f" {requests.failed} failed",
        ),
        (
            "total",
            f"{tokens(tokens_in)} tokens in{cached}, {tokens(tokens_out)} out{thinking} by"
            " this command and earlier ones",
        ),
        ("cost", _cost(report)),
    ]


def _cost(report: "EvalReport | PracticeReport") -> str:
    micro, unpriced = report.usage.cost_micro, report.unpriced
    known = "no requests" if micro is None else dollars(micro)
    if not unpriced:
        return known
    calls, uncounted = sum(unpriced.values()), report.health.uncounted
    models = [brief(model, LINE) for model in list(unpriced)[:NAMED]]
    models += ["others"] if len(unpriced) > NAMED else []
    why = []
    if calls > uncounted:
        why.append(f"no price for {', '.join(models)} ({count(calls - uncounted, 'call')})")
    if uncounted:
        why.append(f"the endpoint reported no tokens for {count(uncounted, 'call')}")
    key = "evaluation.prices (in an evaluation's file: prices)"
    advice = f"; add {key}" if calls > uncounted else ""
    beginning = "unknown" if micro is None else f"at least {known}"
    return f"{beginning}: {' and '.join(why)}{advice}"


def dollars(micro: int) -> str:
    """Format an amount: `$2.90`; below a cent with more digits, so that it never shows as $0.00."""
    return f"${micro / 1e6:.2f}" if micro >= 10_000 or micro == 0 else f"${micro / 1e6:.6f}"


def stage_cost(usd: float | None, unpriced: int) -> str:
    """Format the dollars of some calls; `unknown` if no call has a price."""
    if usd is None:
        return "unknown"
    return ("at least " if unpriced else "") + dollars(round(usd * 1e6))


def show_costs(costs: "Sequence[StageCost]") -> None:
    """Print calls, tokens and money by stage, with cached tokens if an endpoint reports them."""
    cached = ["cached"] if any(c.tokens_cached is not None for c in costs) else []
    if costs:
        say("")
    table(
        ["stage", "model", "calls", "tokens in", *cached, "tokens out", "cost"],
        [
            (
                c.stage,
                c.name,
                str(c.calls),
                _sum(c.tokens_in, c.uncounted),
                *([_cached(c)] if cached else []),
                _sum(c.tokens_out, c.uncounted),
                stage_cost(c.usd, c.unpriced),
            )
            for c in costs
        ],
        right=["calls", "tokens in", "cached", "tokens out", "cost"],
        least=["cached", "model", "calls"],
    )


def _sum(known: int | None, uncounted: int) -> str:
    """Format the total tokens of some calls; mark the total if some calls did not report theirs."""
    return ("at least " if known is not None and uncounted else "") + tokens(known)


def _cached(cost: "StageCost") -> str:
    """Format the share of cached input; tools have no such share."""
    no_request = cost.tokens_in == 0
    return "-" if no_request else cached_share(cost.tokens_in, cost.tokens_cached) or "unknown"
