"""Remaining calls, tokens, money and time of a run, as ranges with their evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import ClassVar, Literal

from typing_extensions import override

from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.core.calls import Usage
from grpo_practice.core.stages import STAGES, Stage, goes_in_batches
from grpo_practice.core.text import DENSE_CHARS_PER_TOKEN, SPARSE_CHARS_PER_TOKEN
from grpo_practice.llm.budget import FLAGS, Account
from grpo_practice.llm.prices import Price, Prices
from grpo_practice.llm.reply_bound import default_limit
from grpo_practice.reports.base import Report
from grpo_practice.run.clients import endpoint_of
from grpo_practice.run.forecast.power import PlannedEffect, PlannedPower
from grpo_practice.run.forecast.range import ONE, Range, around, total
from grpo_practice.run.forecast.shares import RolloutRequests
from grpo_practice.store import Store
from grpo_practice.store.batch_log import mean_seconds
from grpo_practice.store.identity import Identity
from grpo_practice.store.queries import spending
from grpo_practice.store.queries.pace import Pace, pace
from grpo_practice.store.queries.spending import ENOUGH, Figures, Likeness, Piloted, ToCome

EXPERIENCE_TOKENS = 40
"""Upper bound on the tokens of one experience in a prompt: a label and a sentence."""
TURN_TOKENS = 1_000
"""Upper bound on the tokens that a tool call adds to the next request, assumed before the first
call.
"""
DAY_S = 86_400.0
"""Seconds within which an endpoint answers a batch."""
ASSUMED_SECONDS = Range(2, 30)
"""Seconds per call, assumed if the model's speed is unknown."""


@dataclass(frozen=True, slots=True)
class StageCalls:
    """The remaining calls of a stage."""

    part: str
    """`practice` or `evaluation`."""
    stage: Stage
    model: ModelConfig
    calls: Range
    at_once: int
    """Maximum number of calls in flight."""
    chars: float = 0.0
    """Number of characters in one request if known in advance, else 0."""
    held: int = 0
    """Number of experiences that these characters include."""
    experiences: float = 0.0
    """Upper bound on the number of experiences in the prompts, averaged over these calls."""
    system: bytes = b""
    """SHA-256 of the system prompt of these calls."""
    turns: Range = ONE
    """Number of consecutive calls in one rollout."""
    transcripts: int = 0
    """Maximum number of attempts that one prompt may show verbatim."""
    reads: float = 0.0
    """Upper bound on the total tokens of the attempts in one prompt."""
    batches: Range = ONE
    """Number of batches, one after the other, if these calls are made in batches; 0 if they cannot
    be.
    """


@dataclass(frozen=True, slots=True)
class Way:
    """Cost and time of calls that are made in one of two ways."""

    cost_usd: Range | None
    """Dollars; None if one of the models has no price."""
    seconds: Range


NO_WAY = Way(None, Range())


@dataclass(frozen=True, slots=True)
class Line:
    """Forecast for one stage."""

    part: str
    stage: Stage
    model: str
    calls: Range
    tokens_in: Range
    tokens_out: Range
    cost_usd: Range | None
    """Dollars; None if the price is unknown."""
    call_s: Range
    """Seconds per call."""
    seconds: Range
    """Total seconds, at full concurrency or at that of past calls."""
    history: int
    """Number of past calls on which these numbers are based; 0 if the numbers are assumed."""
    of: Likeness = "run"
    """Source of these past calls: the same run, the same prompt, or the same model."""
    turns: Range = ONE
    """Number of consecutive calls in one rollout."""
    max_tokens: int | None = None
    """Maximum number of tokens in a reply; None if nothing limits it."""
    limit_key: str = ""
    """Config key that sets, or would set, this limit."""
    limited_by: Literal["key", "default", "nothing"] = "nothing"
    """Source of the limit."""
    live: Way = NO_WAY
    """Cost and time if each call is made at once."""
    batched: Way = NO_WAY
    """Cost and time if the calls are made in batches as far as they can be."""


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over the stages of a forecast."""

    calls: Range
    tokens_in: Range
    tokens_out: Range
    cost_usd: Range | None
    """Dollars; None if one of the models has no price."""
    seconds: Range


Reached = Literal["no", "maybe", "yes"]


@dataclass(frozen=True, slots=True)
class PlannedCap:
    """A configured cap, and whether the run would exceed it."""

    flag: str
    cap: float
    reached: Reached


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(Report):
    """The remaining work of a run, by stage and in total."""

    schema: ClassVar = "grpo-practice.forecast/1"
    in_document: ClassVar = (
        *("run", "simulated", "pilot", "piloted", "stages", "total", "unpriced", "share", "groups"),
        *("learnable", "turns", "power", "effect", "caps", "live", "batched"),
    )

    run: str
    simulated: bool
    stages: Sequence[Line]
    account: Account
    """Caps, and the spending counted against them."""
    waits: int = 0
    """Number of times that practice waits for its slowest group, which is once per step."""
    share: Range | None = None
    """Share of the groups that teach; None for a run without distillation."""
    groups: int = 0
    """Number of groups from which the share was computed; 0 if the share is assumed."""
    learnable: int = 0
    """Upper bound on the number of experiences still to be learnt; later prompts get longer."""
    experience_tokens: int = EXPERIENCE_TOKENS
    """Number of tokens assumed for each new experience."""
    turns: RolloutRequests | None = None
    """Number of requests per rollout; None if every rollout takes exactly one."""
    pilot: int | None = None
    """Number of questions in the pilot."""
    piloted: Piloted | None = None
    """Totals of the pilot."""
    power: PlannedPower | None = None
    """Difference that the evaluation could detect; None for practice without an evaluation."""
    effect: PlannedEffect | None = None
    """Standard error of an experience's effect; None for a run that measures no effects."""

    @property
    def total(self) -> Total:
        """Sums over all stages; the cost is None if one of the models has no price."""
        calls, tokens_in, tokens_out = (
            total(getattr(line, what) for line in self.stages).whole()
            for what in ("calls", "tokens_in", "tokens_out")
        )
        way = self._way([Way(x.cost_usd, x.seconds) for x in self.stages])
        return Total(calls, tokens_in, tokens_out, way.cost_usd, way.seconds)

    @property
    def live(self) -> Way:
        """Cost and time if each call is made at once."""
        return self._way([x.live for x in self.stages])

    @property
    def batched(self) -> Way:
        """Cost and time if the calls are made in batches as far as they can be."""
        return self._way([x.batched for x in self.stages])

    def _way(self, ways: Sequence[Way]) -> Way:
        # One unknown price makes the sum unknown, rather than too low.
        usd = None if self.unpriced else total(way.cost_usd or Range() for way in ways)
        # At the upper end, each wait for the slowest group adds one call of every stage.
        chain = sum(x.call_s.high * x.turns.high for x in self.stages if x.calls.high > 0)
        work = total(way.seconds for way in ways)
        return Way(usd, Range(work.low, work.high + self.waits * chain))

    @property
    def unpriced(self) -> list[str]:
        """Models that have remaining calls but no price."""
        return sorted({x.model for x in self.stages if x.cost_usd is None and x.calls.high > 0})

    @property
    def caps(self) -> list[PlannedCap]:
        """Configured caps, and whether the run would exceed them."""
        total = self.total
        usd = total.cost_usd or Range()
        needs = {
            "requests": total.calls,
            "tokens": total.tokens_in.plus(total.tokens_out),
            "cost_micro": Range(usd.low * 1e6, usd.high * 1e6),
        }
        found = list[PlannedCap]()
        for name, flag in FLAGS.items():
            cap = getattr(self.account.caps, name)
            if cap is None:
                continue
            left, need = cap - getattr(self.account.spent, name), needs[name]
            # A cap stops the run at the first request beyond it, so spending exactly the cap still
            # fits.
            reached: Reached = "no" if need.high <= left else "yes" if need.low > left else "maybe"
            found.append(PlannedCap(flag, cap / 1e6 if name == "cost_micro" else cap, reached))
        return found

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the remaining calls by stage, and the total cost and time."""
        usd, seconds = self.total.cost_usd, self.total.seconds
        cost = "unknown" if usd is None else f"${usd.low:.4f} to ${usd.high:.4f}"
        return [
            (f"{self.run}: left to do{' (simulated)' if self.simulated else ''}",),
            *(
                (line.stage, f"{line.calls.low:.0f} to {line.calls.high:.0f} calls")
                for line in self.stages
            ),
            ("cost", cost),
            ("time", f"{seconds.low:.0f} to {seconds.high:.0f} s"),
        ]


def forecast_line(
    store: Store, prices: Prices, run: str, left: StageCalls, identity: Identity | None = None
) -> Line:
    """Return the forecast for one stage, based on the most similar past calls.

    The run's `identity` names the agent that plays; calls by another agent are not similar.
    """
    model = left.model.model_provider.model
    params, endpoint = endpoint_of(left.model, prices=prices)
    player = identity if left.stage == "play" else None
    to_come = ToCome(left.stage, model, run, left.part, left.system, player)
    known = store.read(spending.figures, to_come)
    server = store.read(pace, model) if known is None else None
    tokens_in, tokens_out, call_s = (
        _assumed(left, params.get("max_tokens"), server) if known is None else _seen(known, left)
    )
    if not call_s.high:  # replies in batches do not tell how long they took
        call_s = ASSUMED_SECONDS
    shown = known.experiences if known else left.held
    # Experiences still to be learnt make later prompts longer. They may not be learnt, so they
    # count only at the upper end.
    longer = EXPERIENCE_TOKENS * max(left.experiences - shown, 0.0)
    tokens_in = tokens_in.plus(Range(0, longer))
    own, usual = params.get("max_tokens"), default_limit(left.stage, params)
    most = own if isinstance(own, int) else usual
    calls = left.calls.whole()  # round once, here, so that printed numbers add up

    def usd(*, batch: bool) -> Range | None:
        provider = left.model.model_provider
        find = partial(prices.find, model, endpoint.base_url, simulated=provider.simulated)
        price = find(batch=batch)
        each = None if price is None else _usd(price, tokens_in, tokens_out, known)
        return None if each is None else calls.times(each)

    work = calls.times(call_s)
    at_once = min(left.at_once, max(calls.high, 1.0))
    # A server may compute all of them together, or only as many as before, and let others wait.
    before = known.at_once if known else server.at_once if server else at_once
    live_s = Range(work.low / max(at_once, before), work.high / min(at_once, before))
    can_wait = goes_in_batches(left.stage) and left.turns == ONE and left.batches.high > 0
    batches = Range(min(left.batches.low, calls.low), min(left.batches.high, calls.high))
    usual_s = store.read(mean_seconds, model)
    days = Range(batches.low * min(usual_s, DAY_S), batches.high * DAY_S)
    live = Way(usd(batch=False), live_s)
    batched = Way(usd(batch=True), days) if can_wait else live
    used = batched if left.model.model_provider.batch else live
    return Line(
        part=left.part,
        stage=left.stage,
        model=model,
        calls=calls,
        tokens_in=calls.times(tokens_in).whole(),
        tokens_out=calls.times(tokens_out).whole(),
        cost_usd=used.cost_usd,
        call_s=call_s,
        seconds=used.seconds,
        history=known.calls if known else 0,
        of=known.of if known else "run",
        turns=left.turns,
        max_tokens=most,
        limit_key=endpoint.limit_key,
        limited_by="nothing" if most is None else "default" if usual else "key",
        live=live,
        batched=batched,
    )


def _seen(known: Figures, left: StageCalls) -> tuple[Range, Range, Range]:
    """Return input tokens, output tokens and seconds per call, based on past calls."""
    figures = (known.tokens_in, known.tokens_out, known.seconds)
    if known.of == "model" or known.calls < ENOUGH:  # prompts differ in length, or too few calls
        tokens_in, tokens_out, seconds = (Range(mean / 2, mean * 2) for mean, _ in figures)
        # Other runs with this model may have had prompts of a different length.
        if known.of == "model" and (left.chars or left.reads):
            by_text = _by_text(left) if left.chars else _assumed_in(left)
            tokens_in = Range(min(tokens_in.low, by_text.low), max(tokens_in.high, by_text.high))
        return tokens_in, tokens_out, seconds
    calls = left.calls.high
    tokens_in, tokens_out, seconds = (around(*f, known.calls, calls) for f in figures)
    return tokens_in, tokens_out, seconds


def _assumed(
    left: StageCalls, max_tokens: object, server: Pace | None
) -> tuple[Range, Range, Range]:
    tokens_in = _by_text(left) if left.chars else _assumed_in(left)
    tokens_out = Range(*STAGES[left.stage].tokens_out)
    if isinstance(max_tokens, int):
        tokens_out = Range(min(tokens_out.low, max_tokens), min(tokens_out.high, max_tokens))
    rate = server and server.token_s
    seconds = tokens_out.times(Range(rate, rate)) if rate else ASSUMED_SECONDS
    return tokens_in, tokens_out, seconds


def _assumed_in(left: StageCalls) -> Range:
    """Return the tokens of a prompt of unknown length, in which transcripts may be short."""
    return Range(*STAGES[left.stage].tokens_in).plus(Range(0, left.reads))


def transcript_tokens(agent: ModelConfig, turns: Range) -> float:
    """Return an upper bound on the tokens of a rollout's transcript if none has been stored yet."""
    reply, most = STAGES["play"].tokens_out[1], endpoint_of(agent)[0].get("max_tokens")
    reply = min(reply, most) if isinstance(most, int) else reply
    # A tool call and its result stand between two requests, so there is one fewer.
    return reply * turns.high + TURN_TOKENS * (turns.high - 1)


def _by_text(left: StageCalls) -> Range:
    longer = TURN_TOKENS * (left.turns.high - 1) / 2  # mean over the requests of a rollout
    return Range(left.chars / SPARSE_CHARS_PER_TOKEN, left.chars / DENSE_CHARS_PER_TOKEN + longer)


def _usd(price: Price, tokens_in: Range, tokens_out: Range, known: Figures | None) -> Range | None:
    """Return the dollars per call; the lower end assumes the cached share of past calls."""
    cached = int(tokens_in.low * (known.cached_share if known else 0.0))
    least = price.usd(Usage(int(tokens_in.low), cached, int(tokens_out.low)))
    most = price.usd(Usage(ceil(tokens_in.high), None, ceil(tokens_out.high)))
    return None if least is None or most is None else Range(float(least), float(most))
