"""Runs whose requests are sent in batches."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grpo_practice.config.reading.env import Environment
from grpo_practice.core.errors import ConfigError, PausedError
from grpo_practice.llm import batch
from grpo_practice.reports.run_list import runs_report
from grpo_practice.reports.stored_runs import run_report
from grpo_practice.run.forecast.remaining_calls import forecast
from grpo_practice.serve.serving import prepare
from grpo_practice.store import Store
from tests.contract.endpoint.batches import BatchServer, batching
from tests.run.project import Project

MODEL = "evaluation.agent.model.model_provider"
BATCH = f"{MODEL}.batch=true"
PRICES = "evaluation.prices={sim: {input: 1, output: 2, batch_discount: 0.5}}"
SHORT = "practice.epochs=1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "QUIET_S", 0.3)
    monkeypatch.setattr(batch, "FIRST_POLL_S", 0.05)


@pytest.fixture
async def server() -> AsyncIterator[BatchServer]:
    async with batching() as opened:
        yield opened


def at(server: BatchServer, *more: str) -> list[str]:
    return [f"{MODEL}.base_url={server.url}", f"{MODEL}.model=sim", PRICES, *more]


def batches(project: Project) -> list[tuple[str, int]]:
    return project.query(
        "SELECT stage, count(*) FROM batch_calls GROUP BY batch_id ORDER BY 1, batch_id"
    )


@pytest.mark.long
async def test_a_run_in_batches_learns_what_a_live_one_learns_at_half_the_price(
    server: BatchServer, tmp_path: Path
) -> None:
    live, other = Project(tmp_path / "live"), Project(tmp_path / "batch")
    await live.practise(*at(server, SHORT))
    paid = len(server.paid)
    await other.practise(*at(server, SHORT, BATCH))
    assert other.results() == live.results()
    assert len(server.paid) == 2 * paid
    # Two steps of 18 rollouts; each stage of a step is one batch.
    assert [n for stage, n in batches(other) if stage == "play"] == [18, 18]
    for stage in ("compare", "propose"):
        steps = other.query("SELECT DISTINCT step FROM calls WHERE stage = ?", stage)
        assert len([x for x, _ in batches(other) if x == stage]) == len(steps)
    assert not other.query("SELECT 1 FROM batch_calls WHERE stage = 'merge'")

    # Prompts of the teacher have fences of their own in each run, and other hashes.
    sql = "SELECT request_hash, cost_micro FROM calls WHERE stage = 'play'"
    dear, cheap = dict(live.query(sql)), dict(other.query(sql))
    assert {key: (usd + 1) // 2 for key, usd in dear.items()} == cheap
    assert not other.wrong


async def test_an_evaluation_is_one_batch_of_answers_and_one_of_verdicts(
    server: BatchServer, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    await project.evaluate(*at(server, BATCH, "evaluation.verify=judge", "evaluation.pass_k=2"))
    assert batches(project) == [("judge", 24), ("play", 24)]


async def test_verdicts_of_a_live_agent_share_a_batch_and_few_rollouts_are_played_at_once(
    server: BatchServer, tmp_path: Path
) -> None:
    project, playing = Project(tmp_path), [0, 0]

    async def play(question: str, system: str, context: object) -> str:
        playing[0] += 1
        playing[1] = max(playing)
        await asyncio.sleep(0.4)  # longer than it takes to send a batch
        playing[0] -= 1
        return "4"

    judge = f"{{model_provider: {{model: sim, base_url: {server.url!r}, batch: true}}}}"
    sets = ["evaluation.verify=judge", f"evaluation.judge_model={judge}"]
    await project.evaluate(*sets, "evaluation.concurrency=5", PRICES, agent=play)
    assert batches(project) == [("judge", 12)]
    assert playing == [0, 5]


@pytest.mark.long
async def test_comparisons_wait_for_live_rollouts_that_wait_for_their_turn(
    server: BatchServer, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    teacher = f"{{model_provider: {{model: sim, base_url: {server.url!r}, batch: true}}}}"
    slow = f"{MODEL}.requests_per_minute=300"
    await project.practise(*at(server, SHORT, slow, f"practice.teacher_model={teacher}"))
    steps = project.query("SELECT DISTINCT step FROM calls WHERE stage = 'compare'")
    assert len([x for x, _ in batches(project) if x == "compare"]) == len(steps)


async def test_a_cap_pauses_a_run_whose_verdicts_alone_are_in_batches(
    server: BatchServer, tmp_path: Path
) -> None:
    judge = f"{{model_provider: {{model: sim, base_url: {server.url!r}, batch: true}}}}"
    sets = at(server, "evaluation.verify=judge", f"evaluation.judge_model={judge}")
    project = Project(tmp_path, max_requests=20)
    with pytest.raises(PausedError):
        await project.evaluate(*sets)
    assert len(server.paid) == 20
    project.max_requests = None
    await project.evaluate(*sets)
    assert (len(server.paid), server.paid_twice()) == (24, [])
    assert sum(n for stage, n in batches(project) if stage == "judge") == 12


@pytest.mark.long
async def test_a_step_that_goes_on_with_other_settings_uses_the_batch_under_way(
    server: BatchServer, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    waiting = asyncio.create_task(project.practise(*at(server, SHORT, BATCH)))
    while not (project.query("SELECT 1 FROM batch_calls WHERE step = 1") or waiting.done()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    other = "practice.num_experiences_per_query=1"
    await project.practise(*at(server, SHORT, BATCH, other), restart_step=1)
    assert not server.paid_twice()
    assert len(project.query("SELECT DISTINCT branch_id FROM batch_calls")) == 2


async def stopped(project: Project, server: BatchServer) -> None:
    """Begin an evaluation, and stop it while its batch is under way."""
    server.set(hold=True)
    waiting = asyncio.create_task(project.evaluate(*at(server, BATCH)))
    while not (project.of_kind("BatchWaits") or waiting.done()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    server.set(hold=False)


async def test_a_restart_names_the_batch_that_it_leaves_behind(
    server: BatchServer, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    await stopped(project, server)
    await project.evaluate(*at(server, BATCH), restart_step=0)
    assert any("in a batch that is billed" in text for text in project.notices)
    assert len(server.batches) == 2


async def test_a_stopped_command_says_what_it_awaits_and_goes_on(
    server: BatchServer, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    await stopped(project, server)
    with Store(project.db) as store:
        (listed,) = runs_report(store).runs
        shown = run_report(store, "toy/eval")
    assert listed.awaits == shown.awaits
    assert listed.awaits is not None
    assert listed.awaits.text.startswith("12 requests (play) since ")
    waits = [event.what for event in project.of_kind("BatchWaits")]
    assert waits[0].startswith("a batch of 12 requests (play) at 127.0.0.1:")
    assert waits[1:] == [None]
    await project.evaluate(*at(server, BATCH))
    assert (len(server.paid), len(server.batches)) == (12, 1)
    with Store(project.db) as store:
        assert run_report(store, "toy/eval").awaits is None
    await project.evaluate(*at(server, BATCH))
    assert len(server.paid) == 12


async def test_a_forecast_shows_both_ways(server: BatchServer, tmp_path: Path) -> None:
    project = Project(tmp_path)
    with Store(project.db, mode="foresee") as store:
        foreseen = forecast(project.practice_job(store, *at(server, SHORT, BATCH)))
    live, batched = foreseen.live, foreseen.batched
    assert live.cost_usd is not None
    assert batched.cost_usd is not None
    merge = next(x.cost_usd for x in foreseen.stages if x.stage == "merge")
    assert merge is not None
    assert batched.cost_usd.high - merge.high == pytest.approx(
        (live.cost_usd.high - merge.high) / 2
    )
    assert foreseen.total.cost_usd == batched.cost_usd
    # Two steps: rollouts, summaries, comparisons, proposals.
    assert batched.seconds.high == pytest.approx(8 * 86_400, rel=0.01)


TOOLS = "evaluation.agent.toolkits={python: {mode: builtin, name: python_executor, config: {}}}"


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ([TOOLS], "tools needs each reply"),
        (["evaluation.agent.type=command", "evaluation.agent.command=[cat]"], "program of your"),
        ([f"{MODEL}.model=sim", f"{MODEL}.base_url="], "simulated endpoint"),
    ],
)
def test_an_agent_that_cannot_wait_is_refused(
    overrides: list[str], why: str, tmp_path: Path
) -> None:
    project = Project(tmp_path)
    address = [f"{MODEL}.base_url=http://127.0.0.1:9/v1", f"{MODEL}.model=m"]
    with Store(project.db) as store, pytest.raises(ConfigError, match=why) as refused:
        project.eval_job(store, *address, BATCH, *overrides)
    assert refused.value.hint == "set agent.model.model_provider.batch: false"


def test_a_function_that_asks_the_judge_itself_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)

    async def asks(sample: object, llm: object) -> float:
        return 1.0

    address = [f"{MODEL}.base_url=http://127.0.0.1:9/v1", f"{MODEL}.model=m"]
    with Store(project.db) as store, pytest.raises(ConfigError, match="in your own code"):
        project.eval_job(store, *address, BATCH, verify=asks)


def test_a_served_agent_cannot_wait() -> None:
    provider = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "batch": True}
    with pytest.raises(ConfigError, match="clients of a served agent"):
        prepare({"model": {"model_provider": provider}}, Environment({}))
