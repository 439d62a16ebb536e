"""The rest of a run in calls, tokens, money and time; each a range, and what it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from grpo_practice.app.clients import endpoint_of
from grpo_practice.calls import Usage
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.forecast.power import PlannedEffect, PlannedPower
from grpo_practice.forecast.range import ONE, Range, around, total
from grpo_practice.forecast.requests_per_rollout import RolloutRequests
from grpo_practice.llm.budget import FLAGS, Account
from grpo_practice.llm.prices import Price, Prices
from grpo_practice.reports.base import Report
from grpo_practice.stages import STAGES, Stage
from grpo_practice.store import Store
from grpo_practice.store.bound_keys import Identity
from grpo_practice.store.queries import spending
from grpo_practice.store.queries.spending import ENOUGH, Figures, Likeness, Piloted, ToCome
from grpo_practice.text import DENSE_CHARS_PER_TOKEN, SPARSE_CHARS_PER_TOKEN

EXPERIENCE_TOKENS = 40
"""Most tokens of one experience in a prompt: a name and a sentence."""
TURN_TOKENS = 1_000
"""Most tokens that a tool call and its result add to the next request, where none was made yet."""
ASSUMED_SECONDS = Range(2, 30)
"""Seconds of one call, where none was made yet."""


@dataclass(frozen=True, slots=True)
class StageCalls:
    """Calls of one stage that are still to be made."""

    part: str
    """`practice` or `evaluation`."""
    stage: Stage
    model: ModelConfig
    calls: Range
    at_once: int
    """Most calls in flight at once."""
    chars: float = 0.0
    """Characters of one request, where that is known beforehand; else 0."""
    held: int = 0
    """Experiences in those characters."""
    experiences: float = 0.0
    """Most experiences in the prompts of these calls; the mean over them."""
    system: bytes = b""
    """sha256 of the system prompt that is followed."""
    turns: Range = ONE
    """Calls that follow each other in one rollout."""
    transcripts: int = 0
    """Attempts that one prompt may show as they are."""
    reads: float = 0.0
    """Most tokens that these have together."""


@dataclass(frozen=True, slots=True)
class Line:
    """The forecast of one stage."""

    part: str
    stage: Stage
    model: str
    calls: Range
    tokens_in: Range
    tokens_out: Range
    cost_usd: Range | None
    """Dollars; None when the price is unknown."""
    call_s: Range
    """Seconds of one call."""
    seconds: Range
    """Total seconds at full concurrency."""
    history: int
    """Calls that the numbers rest on; 0: they are assumed."""
    of: Likeness = "run"
    """Calls that the numbers rest on: of this run, of the same prompt, or of the model."""
    turns: Range = ONE
    """Calls that follow each other in one rollout."""


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over the stages of a forecast."""

    calls: Range
    tokens_in: Range
    tokens_out: Range
    cost_usd: Range | None
    """None if one of the models has no price."""
    seconds: Range


Reached = Literal["no", "maybe", "yes"]


@dataclass(frozen=True, slots=True)
class PlannedCap:
    """A cap that is set, and whether the run would reach it."""

    flag: str
    cap: float
    reached: Reached


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(Report):
    """The rest of a run, by stage and in sum."""

    schema: ClassVar = "grpo-practice.forecast/1"
    in_document: ClassVar = (
        *("run", "simulated", "pilot", "piloted", "stages", "total", "unpriced", "share", "groups"),
        *("learnable", "turns", "power", "effect", "caps"),
    )

    run: str
    simulated: bool
    stages: Sequence[Line]
    account: Account
    """Caps, and what was spent under them."""
    waits: int = 0
    """Times that a practice waits for the slowest of its groups: once in every step."""
    share: Range | None = None
    """Share of the groups that teach; None where nothing is distilled."""
    groups: int = 0
    """Groups that the share was counted in; 0: it is assumed."""
    learnable: int = 0
    """Most experiences that may yet be learnt; later prompts are longer by them."""
    experience_tokens: int = EXPERIENCE_TOKENS
    """Tokens assumed for each of these."""
    turns: RolloutRequests | None = None
    """Requests of a rollout; None where it takes one."""
    pilot: int | None = None
    """Questions to be played first, in a pilot."""
    piloted: Piloted | None = None
    """Totals of the pilot."""
    power: PlannedPower | None = None
    """Difference that the evaluation could find; None for a practice without one."""
    effect: PlannedEffect | None = None
    """Standard error of an experience's effect; None for a run that measures none."""

    @property
    def total(self) -> Total:
        """Sums over all stages; without dollars if one of the models has no price."""
        calls, tokens_in, tokens_out = (
            total(getattr(line, what) for line in self.stages).whole()
            for what in ("calls", "tokens_in", "tokens_out")
        )
        usd = None if self.unpriced else total(line.cost_usd or Range() for line in self.stages)
        return Total(calls, tokens_in, tokens_out, usd, self._seconds)

    @property
    def unpriced(self) -> list[str]:
        """Models that are still to be asked and have no price."""
        return sorted({x.model for x in self.stages if x.cost_usd is None and x.calls.high > 0})

    @property
    def _seconds(self) -> Range:
        """Seconds in all; at most, every wait is for a call of each stage."""
        chain = sum(x.call_s.high * x.turns.high for x in self.stages if x.calls.high > 0)
        work = total(line.seconds for line in self.stages)
        return Range(work.low, work.high + self.waits * chain)

    @property
    def caps(self) -> list[PlannedCap]:
        """Caps that are set, and whether they would be reached."""
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
            reached: Reached = "no" if need.high <= left else "yes" if need.low > left else "maybe"
            found.append(PlannedCap(flag, cap / 1e6 if name == "cost_micro" else cap, reached))
        return found

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return what is left by stage, and in sum."""
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
    """Return the forecast of one stage, from the calls so far that are most like those to come.

    The run's `identity` says which agent plays: calls of another one are not like those to come.
    """
    model = left.model.model_provider.model
    params, endpoint = endpoint_of(left.model, prices=prices)
    player = identity if left.stage == "play" else None
    to_come = ToCome(left.stage, model, run, left.part, left.system, player)
    known = store.read(spending.figures, to_come)
    tokens_in, tokens_out, call_s = (
        _assumed(left, params.get("max_tokens")) if known is None else _seen(known, left)
    )
    shown = known.experiences if known else left.held
    # What may yet be learnt makes later prompts longer; it counts at the upper end only.
    longer = EXPERIENCE_TOKENS * max(left.experiences - shown, 0.0)
    tokens_in = tokens_in.plus(Range(0, longer))
    price = endpoint.price(model, endpoint.base_url)
    each = None if price is None else _usd(price, tokens_in, tokens_out, known)
    calls = left.calls.whole()  # once, here: what is printed then adds up
    work = calls.times(call_s)
    return Line(
        part=left.part,
        stage=left.stage,
        model=model,
        calls=calls,
        tokens_in=calls.times(tokens_in).whole(),
        tokens_out=calls.times(tokens_out).whole(),
        cost_usd=None if each is None else calls.times(each),
        call_s=call_s,
        seconds=Range(work.low / left.at_once, work.high / left.at_once),
        history=known.calls if known else 0,
        of=known.of if known else "run",
        turns=left.turns,
    )


def _seen(known: Figures, left: StageCalls) -> tuple[Range, Range, Range]:
    """Return tokens in and out, and seconds, of one call as they were so far."""
    figures = (known.tokens_in, known.tokens_out, known.seconds)
    if known.of == "model" or known.calls < ENOUGH:  # prompts of another length, or too few
        tokens_in, tokens_out, seconds = (Range(mean / 2, mean * 2) for mean, _ in figures)
        if known.of == "model" and (left.chars or left.reads):
            by_text = _by_text(left) if left.chars else _assumed_in(left)
            tokens_in = Range(min(tokens_in.low, by_text.low), max(tokens_in.high, by_text.high))
        return tokens_in, tokens_out, seconds
    calls = left.calls.high
    tokens_in, tokens_out, seconds = (around(*f, known.calls, calls) for f in figures)
    return tokens_in, tokens_out, seconds


def _assumed(left: StageCalls, max_tokens: object) -> tuple[Range, Range, Range]:
    tokens_in = _by_text(left) if left.chars else _assumed_in(left)
    tokens_out = Range(*STAGES[left.stage].tokens_out)
    if isinstance(max_tokens, int):
        tokens_out = Range(min(tokens_out.low, max_tokens), min(tokens_out.high, max_tokens))
    return tokens_in, tokens_out, ASSUMED_SECONDS


def _assumed_in(left: StageCalls) -> Range:
    """Return the tokens of a prompt of which nothing is known; its transcripts may be short."""
    return Range(*STAGES[left.stage].tokens_in).plus(Range(0, left.reads))


def transcript_tokens(agent: ModelConfig, turns: Range) -> float:
    """Return the tokens of one rollout's transcript, at most, where none is known."""
    reply, most = STAGES["play"].tokens_out[1], endpoint_of(agent)[0].get("max_tokens")
    reply = min(reply, most) if isinstance(most, int) else reply
    return reply * turns.high + TURN_TOKENS * (turns.high - 1)


def _by_text(left: StageCalls) -> Range:
    longer = TURN_TOKENS * (left.turns.high - 1) / 2  # the mean over its requests
    return Range(left.chars / SPARSE_CHARS_PER_TOKEN, left.chars / DENSE_CHARS_PER_TOKEN + longer)


def _usd(price: Price, tokens_in: Range, tokens_out: Range, known: Figures | None) -> Range | None:
    """Return the dollars of one call; at least, as much of it is cached as was so far."""
    cached = int(tokens_in.low * (known.cached_share if known else 0.0))
    least = price.usd(Usage(int(tokens_in.low), cached, int(tokens_out.low)))
    most = price.usd(Usage(-int(-tokens_in.high // 1), None, -int(-tokens_out.high // 1)))
    return None if least is None or most is None else Range(float(least), float(most))
