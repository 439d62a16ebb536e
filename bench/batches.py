"""A practice run in batches beside the same run live: libraries, money and the forecast of it.

100 questions x 5 attempts x 3 epochs in steps of 50 (1,500 rollouts), against a stand-in for an
endpoint with files and batches that logs what it charges. The seeds decide everything, so nothing
is repeated and `runs` is not looked at.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tests.contract.endpoint.batches import batching

from bench.harness import Row, at_most, folder, write_config
from grpo_practice.core.events import silent
from grpo_practice.run.forecast.remaining_calls import forecast
from grpo_practice.run.practice_run import prepare_practice, run_practice
from grpo_practice.run.requests.runs import PracticeRequest
from grpo_practice.run.session import Session
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store

BATCH = "evaluation.agent.model.model_provider.batch=true"
MODEL = "evaluation.agent.model.model_provider.model=sim"
PRICES = {"sim": {"input": 1.0, "output": 2.0, "batch_discount": 0.5}}


@dataclass(frozen=True, slots=True)
class Practised:
    """A finished run."""

    libraries: list[str]
    forecast_usd: tuple[float, float]
    charged_usd: float
    """Sum over the log of the endpoint."""
    batches: int
    paid_twice: int
    rollouts: int


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Practise live, then in batches."""
    n = 10 if tiny else 100
    with folder() as one, folder() as other:
        live = asyncio.run(_practised(one, n))
        batched = asyncio.run(_practised(other, n, BATCH))
    differ = float(live.libraries != batched.libraries)
    found = [
        Row("libraries in batches, unlike live", "0", [differ], at_most(0)),
        Row("requests paid twice", "0", [float(batched.paid_twice)], at_most(0)),
        Row("charged in batches / live", "≤ 0.51", [_ratio(batched, live)], at_most(0.51)),
    ]
    for name, run in (("live", live), ("in batches", batched)):
        low, high = run.forecast_usd
        outside = float(not low <= run.charged_usd <= high)
        row = Row(f"charge outside its forecast, {name}", "0", [outside], at_most(0))
        row.notes["forecast, charged"] = f"${low:.4f} to ${high:.4f}, ${run.charged_usd:.4f}"
        row.notes["rollouts, batches"] = f"{run.rollouts:,}, {run.batches}"
        found.append(row)
    return found


def _ratio(batched: Practised, live: Practised) -> float:
    return batched.charged_usd / live.charged_usd


async def _practised(place: Path, n: int, *sets: str) -> Practised:
    config = place / "practice.yaml"
    async with batching() as server:
        practice = {"epochs": 3, "batch_size": n // 2, "grpo_n": 5, "rollout_concurrency": 64}
        evaluation = {"prices": PRICES}
        data = {"practice_dataset_name": "train"}
        write_config(config, server.url, practice=practice, data=data, evaluation=evaluation)
        with Store(place / "b.db") as store:
            store.add_dataset("train", questions(n, 0), origin="sim", replace=False)
        request = PracticeRequest(config=config, env={}, sets=(MODEL, *sets))
        with Store(place / "b.db", mode="foresee") as store:
            foreseen = forecast(prepare_practice(Session(store, silent, "bench"), request))
        with Store(place / "b.db") as store:
            await run_practice(prepare_practice(Session(store, silent, "bench"), request))
            made = "SELECT hex(sha256) FROM libraries ORDER BY library_id"
            libraries = store.read(lambda db: [row[0] for row in db.execute(made)])
            played = "SELECT count(*) FROM rollouts"
            rollouts = store.read(lambda db: db.execute(played).fetchone()[0])
    assert foreseen.total.cost_usd is not None
    return Practised(
        libraries,
        (foreseen.total.cost_usd.low, foreseen.total.cost_usd.high),
        sum(map(_usd, server.paid)),
        len(server.batches),
        len(server.paid_twice()),
        rollouts,
    )


def _usd(paid: "dict[str, object]") -> float:
    full = (int(str(paid["tokens_in"])) + 2 * int(str(paid["tokens_out"]))) / 1e6
    return full / 2 if paid["batch"] else full
