"""Gain by number of questions, attempts, epochs and steps, and by the score before practice.

40 worlds without client (see `toy`), with a teacher that is wrong about 15 % of the groups. The
tables of docs/choosing.md. There is nothing to repeat: the seeds decide everything, and `runs` is
not looked at.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from bench.harness import Row
from bench.learning import paired
from bench.toy import Policy, Toy
from grpo_practice.sim.world import Difficulty, Teaching, World

WORLD = World(teacher=Teaching(noise=0.15))
SEEDS = 40
SPREAD = 0.9
"""a + b of the Beta distribution of difficulties, as in the world's default."""


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Return the gain of each choice in points; rollouts and informative groups are notes."""
    seeds = 2 if tiny else SEEDS
    return [
        _row(name, replace(WORLD, difficulty=difficulty), policy, seeds)
        for name, difficulty, policy in _choices()
    ]


def _choices() -> Iterator[tuple[str, Difficulty, Policy]]:
    usual = Difficulty()
    for n in (10, 20, 50, 100, 150):
        for epochs in (1, 2, 3):
            yield f"{n} questions, {epochs} epochs", usual, Policy(questions=n, epochs=epochs)
    for n in (20, 50, 100):
        for attempts in (2, 3, 4):
            yield f"{n} questions, grpo_n {attempts}", usual, Policy(attempts, questions=n)
        for steps in (1, 3, 5):
            yield f"{n} questions, {steps} steps an epoch", usual, Policy(questions=n, steps=steps)
    yield "100 questions, grpo_n 3, 2 epochs", usual, Policy(3, epochs=2)
    for score in (0.05, 0.2, 0.4, 0.55, 0.7, 0.85, 0.95):
        difficulty = Difficulty(SPREAD * score, SPREAD * (1 - score))
        for n in (20, 50, 100):
            yield f"score {score} before, {n} questions", difficulty, Policy(questions=n)


def _row(name: str, world: World, policy: Policy, seeds: int) -> Row:
    done = [Toy(replace(world, seed=seed)).practise(policy) for seed in range(seeds)]
    gain, error = paired([outcome.gains[-1] for outcome in done])
    rollouts = fmean(outcome.rollouts for outcome in done)
    informative = fmean(outcome.mixed for outcome in done) * policy.attempts / rollouts
    notes = {
        "standard error": round(error, 2),
        "rollouts": round(rollouts),
        "informative groups": f"{100 * informative:.0f} %",
    }
    return Row(f"{name}: gain, points", "", [gain], None, notes)
