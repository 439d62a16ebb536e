"""The options that say what a run may cost, and what it would."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.common import count, database, duration, note, open_store, say, tokens
from grpo_practice.cli.tables import facts, table
from grpo_practice.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.build.forecast import Forecast, Line, Range
    from grpo_practice.llm.budget import Caps
    from grpo_practice.store import Store

MaxCostOption = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", min=0, help="Pause before the run costs more."),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", min=0, help="Pause before it takes more, in + out."),
]
MaxRequestsOption = Annotated[
    int | None,
    typer.Option("--max-requests", metavar="N", min=0, help="Pause before it sends more."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what is left to do and to pay; ask and write nothing."),
]
PilotOption = Annotated[
    int | None,
    typer.Option("--pilot", metavar="N", min=1, help="Play N questions, keep them, and forecast."),
]


def caps(max_cost: float | None, max_tokens: int | None, max_requests: int | None) -> "Caps":
    """The caps of these options.

    Raises:
        ConfigError: The money is no number.
    """
    from grpo_practice.llm.budget import Caps

    if max_cost is not None and not math.isfinite(max_cost):
        raise ConfigError(f"--max-cost {max_cost}: should be dollars, for instance 2.50")
    micro = None if max_cost is None else round(max_cost * 1e6)
    return Caps(max_requests, max_tokens, micro)


@contextmanager
def working_store(db: Path | None, *, dry_run: bool, pilot: int | None) -> Iterator["Store"]:
    """The database; in a dry run a copy of it, so that nothing can be written.

    Raises:
        ConfigError: A dry run was to play something.
        StoreError: It cannot be used.
    """
    if dry_run and pilot is not None:
        raise ConfigError(
            "--dry-run asks nothing and --pilot plays: give one of them",
            hint="--pilot prints the forecast too, when it has played",
        )
    if not dry_run:
        with open_store(db) as store:
            yield store
        return
    from grpo_practice.store.rehearsal import rehearsal

    with rehearsal(database(db)) as store:
        yield store


def show_forecast(forecast: "Forecast") -> None:
    """What is left of a run by stage, in sum, and what the numbers rest on."""
    if not forecast.lines:
        say(f"{forecast.run}: nothing is left to do")
        return
    said = " (simulated)" if forecast.simulated else ""
    say(f"{forecast.run}{said}: what is left to do", style="bold")
    headers = ["stage", "model", "calls", "tokens in", "tokens out", "cost", "rests on"]
    table(headers, map(_row, forecast.lines), right=headers[2:6])
    usd = forecast.usd
    unknown = f"unknown: {', '.join(forecast.unpriced)} has no price (evaluation.prices)"
    facts(
        [
            ("calls", _numbers(forecast.total("calls"))),
            ("tokens in", _tokens(forecast.total("tokens_in"))),
            ("tokens out", _tokens(forecast.total("tokens_out"))),
            ("cost", unknown if usd is None else _money(usd)),
            ("time", " to ".join(dict.fromkeys(duration(s) for s in forecast.seconds))),
            ("groups that teach", _share(forecast)),
            *((flag, _reached(cap, said)) for flag, cap, said in forecast.caps),
        ]
    )
    note("retries and questions asked again for want of a readable reply are not counted")


def _row(line: "Line") -> list[str]:
    part = "" if line.part == "practice" else f" ({line.part})"
    return [
        f"{line.stage}{part}",
        line.model,
        _numbers(line.calls),
        _tokens(line.tokens_in),
        _tokens(line.tokens_out),
        "unknown" if line.usd is None else _money(line.usd),
        f"{count(line.history, 'such call')}" if line.history else "assumption",
    ]


def _numbers(found: "Range") -> str:
    return " to ".join(dict.fromkeys(str(n) for n in found.rounded()))


def _tokens(found: "Range") -> str:
    return " to ".join(dict.fromkeys(tokens(n) for n in found.rounded()))


def _money(found: "Range") -> str:
    digits = 2 if found.high >= 1 or found.high == 0 else 4
    return " to ".join(dict.fromkeys(f"${usd:.{digits}f}" for usd in found))


def _share(forecast: "Forecast") -> str:
    if forecast.share is None:
        return ""
    rests = f"as in {count(forecast.groups, 'group')} of this run"
    shown = " to ".join(dict.fromkeys(f"{x:.0%}" for x in forecast.share))
    return f"{shown}, {rests if forecast.groups else 'an assumption'}"


def _reached(cap: float, said: str) -> str:
    meant = {"no": "will not be reached", "maybe": "may be reached", "yes": "will be reached"}
    return f"{cap:g} {meant[said]}"
