"""Does `experiences effect` measure what an experience is worth, and does `prune` do no harm?

Rewards are drawn by the chances that simulated worlds give; the truth is worked out in these
worlds, for an effect on the questions that were asked, for a library on others.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from bench.effects import effects as true_effects
from bench.harness import Row, share
from grpo_practice.core.stats.effects import Effects, design, effects, halves, kept, planned_se
from grpo_practice.sim.questions import TOPICS, questions
from grpo_practice.sim.world import EffectKind, World

Floats = NDArray[np.float64]

WORLDS, QUESTIONS, K, EXPERIENCES = 200, 200, 8, 20
TESTED = 400
"""Other questions, on which the pruned library is compared with the whole one."""
KINDS: dict[str, tuple[EffectKind, ...]] = {
    "all help": ("help",),
    "all null": ("null",),
    "default": (),
    "a third harmful": ("help", "null", "harm"),
}
"""Kinds of the experiences of a library, in turn; none: as the world's rule draws them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A library of a world, and what its rollouts tell."""

    world: World
    keys: tuple[str, ...]
    asked: tuple[str, ...]
    found: Effects
    sigma2: float
    """True variance of a reward within a question and a half of the library."""
    omega2: float
    """True variance of an effect between questions, the mean over the experiences."""


def measured(kind: str, seed: int) -> Measured:
    """Draw a world, a library and the rewards of its rollouts, and estimate the effects."""
    world = World(seed=seed)
    keys = _library(world, kind)
    asked = tuple(q.question for q in questions(QUESTIONS, seed))
    shown = design(EXPERIENCES, QUESTIONS, K, seed)
    p = chances(world, asked, keys, shown)
    rewards = (np.random.default_rng([seed, 1]).random(p.shape) < p).astype(np.float64)
    of = np.arange(QUESTIONS).repeat(K)
    found = effects(rewards.ravel(), shown.reshape(-1, EXPERIENCES), of, of)
    sigma2 = float((p * (1 - p)).mean())
    return Measured(world, keys, asked, found, sigma2, _omega2(world, asked, keys))


def _omega2(world: World, asked: tuple[str, ...], keys: tuple[str, ...]) -> float:
    """Return the variance over questions of an effect among half of the others."""
    rows = halves(len(keys))
    shown = np.vstack([rows, ~rows])
    p = chances(world, asked, keys, np.broadcast_to(shown, (len(asked), *shown.shape)))
    by_question = p @ np.where(shown, 1, -1) / len(rows)
    return float(by_question.var(axis=0, ddof=1).mean())


def _library(world: World, kind: str) -> tuple[str, ...]:
    """Draw experiences about topics at random, each once."""
    rng, topics, kinds = np.random.default_rng([world.seed, 0]), list(TOPICS), KINDS[kind]
    keys = dict[str, None]()
    while len(keys) < EXPERIENCES:
        topic, n = topics[rng.integers(len(topics))], len(keys)
        drawn = f"{topic}-{rng.integers(256):02x}"
        keys[world.key(topic, kinds[n % len(kinds)], n) if kinds else drawn] = None
    return tuple(keys)


def chances(
    world: World, asked: Iterable[str], keys: tuple[str, ...], shown: NDArray[np.bool_]
) -> Floats:
    """Return the chance of a right answer of each attempt. Shape: [questions, k]."""
    rows = [world.logits(question, keys) for question in asked]
    table = np.array([row for row in rows if row is not None])
    tokens = np.array([world.item(key).tokens for key in keys])
    logit = table[:, :1] + np.einsum("qkm,qm->qk", shown, table[:, 1:])
    return np.asarray(1 / (1 + np.exp(world.dilution * (shown @ tokens) / 1_000 - logit)))


def _of_effects(seed: int) -> tuple[float, int, float]:
    """Return SE / formula of a world, how many of its intervals hold, and their root mean error."""
    it = measured("default", seed)
    true = np.array(true_effects(it.world, it.asked, it.keys).in_part)
    promised = planned_se(it.sigma2, it.omega2, EXPERIENCES, QUESTIONS, K)
    covered = (it.found.low <= true) & (true <= it.found.high)
    error = float(np.sqrt(((it.found.effect - true) ** 2).mean()))
    return float(it.found.se.mean()) / promised, int(covered.sum()), error / promised


def _of_prune(kind: str, seed: int) -> tuple[float, int]:
    """Return what a library gains by being pruned, in points, and how many experiences go."""
    it = measured(kind, seed)
    stay = [it.keys[j] for j in kept(it.found)]
    tested = [q.question for q in questions(TESTED, 1_000_000 + seed)]
    before, after = (it.world.truth(tested, keys).mean() for keys in (it.keys, stay))
    return 100 * float(after - before), len(it.keys) - len(stay)


def effect_rows(*, tiny: bool) -> list[Row]:
    """Return a row for each promise about effects and pruned libraries."""
    worlds = 2 if tiny else WORLDS
    if tiny:
        return _rows(worlds, lambda work: [work(seed) for seed in range(worlds)])
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return _rows(worlds, lambda work: [*pool.map(work, range(worlds), chunksize=5)])


Spread = Callable[[Callable[[int], tuple[float, ...]]], list[tuple[float, ...]]]
"""Runs a function of a seed for each seed."""


def _rows(worlds: int, spread: Spread) -> list[Row]:
    ratios, covered, errors = zip(*spread(_of_effects), strict=True)
    n = worlds * EXPERIENCES
    ratio = _mean_row(
        "effects: standard error / formula with the true variances", ratios, (0.95, 1.05)
    )
    ratio.notes["worlds, from to"] = f"{min(ratios):.2f} to {max(ratios):.2f}"
    ratio.notes["root mean square error / formula"] = f"{np.sqrt(np.square(errors).mean()):.2f}"
    rows = [ratio, share("effects: coverage", int(sum(covered)), n, (92, 97))]
    for kind in KINDS:
        gains, gone = zip(*spread(partial(_of_prune, kind)), strict=True)
        least = 1.0 if kind == "a third harmful" else -0.5
        lost = share(f"prune, {kind}: loses > 1 point", sum(g < -1 for g in gains), worlds, (0, 5))
        gain = _mean_row(f"prune, {kind}: mean gain, points", gains, (least, np.inf))
        gain.notes["experiences taken out, mean of 20"] = f"{np.mean(gone):.1f}"
        rows += [lost, gain]
    return rows


def _mean_row(name: str, values: tuple[float, ...], target: tuple[float, float]) -> Row:
    """Return a row for a mean, reached where its 95 % interval is."""
    mean, half = float(np.mean(values)), 1.96 * float(np.std(values)) / sqrt(len(values))
    least, most = target
    bounds = f"≥ {least:g}" if most == np.inf else f"{least:g} to {most:g}"
    row = Row(name, bounds, [mean], lambda _: least <= mean - half and mean + half <= most)
    row.notes["worlds, interval"] = f"{len(values):,}, {mean - half:.2f} to {mean + half:.2f}"
    return row
