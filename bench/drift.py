"""How often is a verdict false while the endpoint gets better by itself?

Both arms are worth the same: an agent, and the agent with experiences about other things, in a
world where text costs nothing. Each seed is another world, with other questions, and both orders
of play begin with the endpoint as it is at first. All is done as the commands do it, through the
program's own client, prompts and store.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from bench.harness import folder, write_config
from bench.learning import SOLVER
from grpo_practice import Workspace
from grpo_practice.core.types import Library
from grpo_practice.llm import sim
from grpo_practice.llm.sim import SimTransport
from grpo_practice.practice.placebo_arms import filler
from grpo_practice.reports.comparison import ComparisonReport
from grpo_practice.sim.questions import questions
from grpo_practice.sim.world import World
from grpo_practice.store import Store

Order = Literal["in turn", "together"]
"""How two arms are played: as one evaluation after the other, or by `eval --arms`."""

DATABASE = "p.db"
DRIFT = 3.0
QUESTIONS, ATTEMPTS = 100, 4
PRACTISED = 12
"""Questions of the practice run whose library says how long the filler is."""


@dataclass(frozen=True, slots=True)
class Practised:
    """A practice run, whose library says how long the filler is."""

    at: Path
    """Folder with its config and its database."""
    filler: Library
    """Experiences about other things, as the arm of that name has them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a comparison of two equal arms came to."""

    false: bool
    """Whether one is said to be better."""
    difference: float
    """Mean reward of the second arm less that of the first."""


def outcomes(seeds: int, *, drift: float = DRIFT) -> Mapping[Order, Sequence[Outcome]]:
    """Return how two equal arms compare in each of so many worlds, played in both orders.

    Args:
        seeds: Number of worlds; they are played in as many processes as there are cores.
        drift: Logits by which the endpoint gets better per 1,000 requests.
    """
    with folder() as here:
        play = partial(_both_orders, practise(here), drift)
        # Not forked: a child would inherit the locks of whatever threads run here.
        with ProcessPoolExecutor(min(seeds, cpu_count() or 1), get_context("spawn")) as pool:
            played = list(pool.map(play, range(seeds)))
    return {order: [each[order] for each in played] for order in ORDERS}


def practise(here: Path) -> Practised:
    """Let an agent practise once, at an endpoint that does not drift."""
    write_config(
        here / "c.yaml",
        "",
        practice={"epochs": 1, "batch_size": PRACTISED, "grpo_n": 4},
        data={"practice_dataset_name": "tasks"},
        evaluation={
            "agent": SOLVER,
            "verify": "math",
            "data": {"dataset": "test"},
            "pass_k": ATTEMPTS,
        },
    )
    _upload(here, "tasks", PRACTISED, seed=0)
    report = Workspace(here / DATABASE).practise(here / "c.yaml", env={})
    with Store(here / DATABASE) as store:
        return Practised(here, store.put_library(report.branch, filler(report.library)))


def _upload(here: Path, name: str, n: int, *, seed: int) -> None:
    with Store(here / DATABASE) as store:
        store.add_dataset(name, questions(n, seed), origin="sim", replace=False)


def _both_orders(practised: Practised, drift: float, seed: int) -> Mapping[Order, Outcome]:
    world = World(seed=seed, drift=drift, dilution=0.0)
    return {order: play_arms(practised, order, world) for order in ORDERS}


def play_arms(practised: Practised, order: Order, world: World) -> Outcome:
    """Play both arms at an endpoint with this world, and compare them."""
    # One for all evaluations: each opens a transport, and the endpoint does not begin anew.
    served = SimTransport(world)
    with folder() as here, patch.object(sim, "SimTransport", lambda: served):
        shutil.copytree(practised.at, here, dirs_exist_ok=True)
        _upload(here, "test", QUESTIONS, seed=world.seed + 1)
        report = ORDERS[order](Workspace(here / DATABASE), here / "c.yaml", practised.filler)
    (contrast,) = report.contrasts
    return Outcome(contrast.verdict in ("better", "worse"), contrast.judged.mean)


def _in_turn(workspace: Workspace, config: Path, other: Library) -> ComparisonReport:
    first = workspace.evaluate(config, env={})
    second = workspace.evaluate(config, env={}, library=other)
    return workspace.compare(first.run, second.run)


def _together(workspace: Workspace, config: Path, _: Library) -> ComparisonReport:
    return workspace.evaluate_arms(["none", "filler"], config, env={})


ORDERS: Mapping[Order, Callable[[Workspace, Path, Library], ComparisonReport]] = {
    "in turn": _in_turn,
    "together": _together,
}
