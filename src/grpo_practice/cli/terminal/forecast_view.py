"""The forecast of a run on the terminal."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_practice.cli.options import as_typed
from grpo_practice.cli.terminal.formatting import count, duration, note, reward, say, tokens
from grpo_practice.cli.terminal.tables import facts, table

if TYPE_CHECKING:
    from grpo_practice.api.workspace import Forecast, Line, Piloted, Range, Way

DAY_S = 86_400
RESTS_ON = {"run": "this run", "prompt": "same prompt", "model": "other prompts"}
"""Labels for the calls that a forecast is based on."""


def show_forecast(forecast: "Forecast") -> None:
    """Print a pilot's result, and the remaining work of the run by stage and in total."""
    if forecast.piloted is not None:
        say(f"pilot: {_piloted(forecast.piloted)}")
    if not forecast.stages:
        say(f"{forecast.run}: nothing left to do")
        return
    mark = " (simulated)" if forecast.simulated else ""
    say(f"{forecast.run}{mark}: remaining work", style="bold")
    headers = ["stage", "calls", "tokens in", "tokens out", "cost", "based on"]
    table(headers, map(_row, forecast.stages), right=headers[1:5])
    total = forecast.total
    usd = total.cost_usd
    unknown = f"unknown: {', '.join(forecast.unpriced)} has no price (evaluation.prices)"
    facts(
        [
            ("model", _models(forecast.stages)),
            ("calls", _numbers(total.calls)),
            ("tokens in", _tokens(total.tokens_in)),
            ("tokens out", _tokens(total.tokens_out)),
            ("cost", unknown if usd is None else _money(usd)),
            ("time", _time(total.seconds)),
            *_ways(forecast),
            ("max_tokens", _limits(forecast.stages)),
            ("requests per rollout", _turns(forecast)),
            ("informative groups", _share(forecast)),
            ("new experiences", _learnable(forecast)),
            ("detectable", _power(forecast)),
            ("standard error", _standard_error(forecast)),
            *((cap.flag, _reached(cap.cap, cap.reached)) for cap in forecast.caps),
        ]
    )
    note("not counted: retries, and requests repeated because a reply was unreadable")
    if forecast.turns is not None:
        note("nor the tools' own costs: their prices, model calls and time")
    if hint := _cap_hint(forecast):
        say(hint)
    say(f"next: {goes_on(sys.argv[1:], begun=forecast.piloted is not None)}{_first(forecast)}")


def _ways(forecast: "Forecast") -> list[tuple[str, str]]:
    """Return cost and time of both ways to make the calls, if batches are used or cost less."""
    live, batched = forecast.live, forecast.batched
    is_used = forecast.total.seconds == batched.seconds != live.seconds
    if live.cost_usd == batched.cost_usd and not is_used:
        return []
    return [("sent at once", _way(live)), ("in batches", _way(batched))]


def _way(way: "Way") -> str:
    cost = "cost unknown" if way.cost_usd is None else _money(way.cost_usd)
    return f"{cost}, {_time(way.seconds)}"


def _time(seconds: "Range") -> str:
    if seconds.high > 2 * DAY_S:
        least = f"{duration(seconds.low)} to " if seconds.low >= 1 else "up to "
        return f"{least}{seconds.high / DAY_S:.0f} days"
    if seconds.low < 1 < seconds.high:
        return f"up to {duration(seconds.high)}"
    return " to ".join(dict.fromkeys(duration(s) for s in seconds))


def _power(forecast: "Forecast") -> str:
    """Return the smallest difference that the evaluation can detect, in points."""
    power = forecast.power
    if power is None:
        return ""
    asked = f"{count(power.questions, 'question')} \u00d7 {power.k}"
    if power.effective_clusters < power.questions:
        asked += f" in families worth {power.effective_clusters:.0f} independent questions"
    if power.finds is None or power.finds.high > 1:
        return f"no difference, because {asked} are too few"
    ends = list(dict.fromkeys(f"{100 * x:.1f}" for x in power.finds))
    basis = "" if power.measured else ", partly assumed"
    return f"a difference of {' to '.join(ends)} points, with 80 % power ({asked}{basis})"


def _standard_error(forecast: "Forecast") -> str:
    """Return the expected standard error of each experience's effect."""
    planned = forecast.effect
    if planned is None:
        return ""
    ends = " to ".join(dict.fromkeys(f"{100 * x:.1f}" for x in planned.se))
    said = f"{ends} points per effect ({count(planned.rollouts, 'rollout')})"
    if not planned.measured:
        said += (
            ", partly assumed: the low end if effects are the same for all questions, the high end"
            " if they differ as much as rewards allow"
        )
    return f"{said}; a 95 % interval extends about twice that on each side"


def goes_on(argv: Sequence[str], *, begun: bool) -> str:
    """Return the command without `--dry-run` or `--pilot`: it does the work that was forecast.

    If a pilot has `begun` a new run, `--again` is dropped too, so that the command resumes the run.
    """
    words, left = list[str](), iter(argv)
    dropped = ("--dry-run", "--again") if begun else ("--dry-run",)
    for word in left:
        if word == "--pilot":
            next(left, None)
        elif word not in dropped and not word.startswith("--pilot="):
            words.append(word)
    return as_typed(words)


def _first(forecast: "Forecast") -> str:
    """Return `--pilot 1` if the number of requests per rollout is still unknown."""
    unknown = forecast.turns is not None and not forecast.turns.rollouts
    return " --pilot 1" if unknown and forecast.piloted is None else ""


def _cap_hint(forecast: "Forecast") -> str:
    caps = [cap for cap in forecast.caps if cap.reached != "no"]
    if not caps:
        return ""
    flags = " and ".join(cap.flag for cap in caps)
    surely = "will" if any(cap.reached == "yes" for cap in caps) else "may"
    return f"the run {surely} pause before it is finished: raise {flags}"


def _piloted(did: "Piloted") -> str:
    if not did.rollouts:
        return "no new rollouts"
    usage = did.usage
    cost = "cost unknown" if usage.cost_micro is None else f"${usage.cost_micro / 1e6:.4f}"
    played = f"{count(did.questions, 'question')}, {count(did.rollouts, 'rollout')}"
    spent = f"{tokens(usage.tokens_in)} tokens in, {tokens(usage.tokens_out)} out, {cost}"
    return f"{played}, mean reward {reward(did.reward)}; {spent}"


def _row(line: "Line") -> list[str]:
    part = {"practice": "", "evaluation": "eval "}.get(line.part, f"{line.part} ")
    return [
        f"{part}{line.stage}",
        _numbers(line.calls),
        _tokens(line.tokens_in),
        _tokens(line.tokens_out),
        "unknown" if line.cost_usd is None else _money(line.cost_usd),
        RESTS_ON[line.of] if line.history else "assumption",
    ]


def _models(lines: Sequence["Line"]) -> str:
    """Return the model; if there are several, each with its stages."""
    stages = dict[str, list[str]]()
    for line in lines:
        stages.setdefault(line.model, []).append(_row(line)[0])
    if len(stages) == 1:
        return next(iter(stages))
    return "; ".join(f"{model}: {', '.join(asked)}" for model, asked in stages.items())


def _limits(lines: Sequence["Line"]) -> str:
    """Return the maximum length of replies and its source, with the stages that it applies to."""
    stages = dict[str, list[str]]()
    for line in lines:
        limit = f"{line.max_tokens} tokens" if line.max_tokens else "none"
        source = {"key": line.limit_key, "default": "default", "nothing": f"set {line.limit_key}"}
        stages.setdefault(f"{limit} ({source[line.limited_by]})", []).append(_row(line)[0])
    return "; ".join(f"{', '.join(asked)}: {limit}" for limit, asked in stages.items())


def _range(shown: Sequence[str]) -> str:
    return "\N{EN DASH}".join(dict.fromkeys(shown))


def _numbers(values: "Range") -> str:
    return _range([str(int(n)) for n in values])


def _tokens(values: "Range") -> str:
    return _range([_short(n) for n in values])


def _short(n: float) -> str:
    """Format a number in a few characters: `950`, `1.2k`, `65.2k`, `218k`, `1.23M`."""
    if n < 1_000:
        return f"{n:.0f}"
    if n < 99_950:
        return f"{n / 1e3:.1f}k"
    if n < 999_500:
        return f"{n / 1e3:.0f}k"
    return f"{n / 1e6:.2f}M" if n < 9_995_000 else f"{n / 1e6:.1f}M"


def _money(values: "Range") -> str:
    digits = 2 if values.high >= 1 or values.high == 0 else 4
    return _range([f"${usd:.{digits}f}" for usd in values])


def _share(forecast: "Forecast") -> str:
    if forecast.share is None:
        return ""
    rests = "assumed, within the limits set by the score before practice"
    if forecast.groups:
        rests = f"as in {count(forecast.groups, 'group')} of this run"
    return f"{_range([f'{x:.0%}' for x in forecast.share])}, {rests}"


def _turns(forecast: "Forecast") -> str:
    turns = forecast.turns
    if turns is None:
        return ""
    shown = _range([f"{x:.1f}".removesuffix(".0") for x in turns.each])
    if turns.rollouts:
        return f"{shown}, as in {count(turns.rollouts, 'rollout')} of this agent"
    return f"{shown}: unknown until --pilot plays some rollouts"


def _learnable(forecast: "Forecast") -> str:
    n = forecast.learnable
    if not n:
        return ""
    return (
        f"up to {count(n, 'experience')}; the upper ends assume {forecast.experience_tokens}"
        " tokens for each in later prompts"
    )


def _reached(cap: float, reached: str) -> str:
    meant = {"no": "will not be reached", "maybe": "may be reached", "yes": "will be reached"}
    return f"{cap:g} {meant[reached]}"
