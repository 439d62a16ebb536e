"""A forecast writes nothing, counts what is left, and says what it rests on; a pilot is kept."""

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import DataError, RunFailedError, StoreError
from grpo_practice.core.stages import STAGES
from grpo_practice.core.types import Library
from grpo_practice.llm.budget import Account, Amount, Caps
from grpo_practice.run.forecast import remaining_calls
from grpo_practice.run.forecast.estimate import ASSUMED_SECONDS, Forecast, Line, PlannedCap
from grpo_practice.run.forecast.range import Range
from grpo_practice.run.forecast.remaining_calls import forecast as forecast_of_job
from grpo_practice.run.pilot import run_pilot
from grpo_practice.store import Store, branches, datasets, steps
from tests.contract.project import served
from tests.run.project import Project, finished

PRICED = "evaluation.prices={sim: {input: 10, output: 20}}"
ALWAYS = "practice.summaries=always"
EVALUATED = ("practice.do_eval=true", "practice.eval_data_truncate=4")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def ahead(project: Project, *overrides: str, restart_step: int | None = None) -> Forecast:
    with Store(project.db, "foresee") as store:
        job = project.practice_job(store, *overrides, restart_step=restart_step)
        return forecast_of_job(job)


async def pilot(project: Project, n: int, *overrides: str) -> Forecast:
    with Store(project.db) as store:
        return await run_pilot(project.practice_job(store, *overrides), n)


def calls(forecast: Forecast) -> dict[str, Range]:
    return {f"{x.part} {x.stage}": x.calls for x in forecast.stages}


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    def state() -> dict[str, str]:
        return {
            str(p): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*"))
            if p.is_file()
        }

    before = state()
    yield
    assert state() == before


def test_a_dry_run_writes_nothing_and_imports_no_file(project: Project) -> None:
    (project.folder / "new.csv").write_text("question,answer\n1+1?,2\n2+2?,4\n3+3?,6\n")
    with unchanged(project.folder):
        forecast = ahead(project, "data.practice_dataset_name=new.csv", "practice.epochs=1")
    assert calls(forecast)["practice play"] == (9, 9)
    assert project.query("SELECT count(*) FROM runs") == [(0,)]
    assert project.query("SELECT name FROM datasets ORDER BY 1") == [("test",), ("train",)]


def test_a_dry_run_leaves_what_a_killed_command_left(project: Project) -> None:
    code = "import os, sys; from pathlib import Path; from grpo_practice.store import Store\n"
    code += "Store(Path(sys.argv[1])).hide_dataset('test'); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, str(project.db)], check=True)
    log = project.db.with_name(f"{project.db.name}-wal")
    before = project.db.read_bytes(), log.read_bytes()
    with Store(project.db, "foresee") as store, pytest.raises(DataError, match="no dataset 'test'"):
        store.read(datasets.get, "test")
    assert (project.db.read_bytes(), log.read_bytes()) == before
    assert before[1]


def test_a_dry_run_needs_no_database(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "none.db"
    with Store(path, "foresee") as store:
        assert store.path == path
    assert not path.parent.exists()


def test_a_dry_run_names_the_database_it_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    said = r"other\.db is a database of another program"
    with pytest.raises(StoreError, match=said), Store(path, "foresee"):
        pytest.fail("was opened")


def test_without_history_the_numbers_are_assumptions_and_say_so(project: Project) -> None:
    auto = calls(ahead(project, PRICED))
    assert auto["practice summarise"] == (0, 44)  # nobody knows yet which transcripts will fit
    assert "practice summarise" not in calls(ahead(project, "practice.summaries=never"))
    forecast = ahead(project, PRICED, ALWAYS)
    assert calls(forecast) == {
        "practice play": (72, 72),
        "practice summarise": (7, 44),  # 10 to 60 % of 24 groups of 3, in whole calls
        "practice compare": (2, 15),
        "practice propose": (0, 15),
        "practice merge": (0, 4),
    }
    assert {line.history for line in forecast.stages} == {0}
    assert (forecast.share, forecast.groups) == ((0.1, 0.6), 0)
    play = forecast.stages[0]
    assert play.tokens_out == (72 * 200, 72 * 2_000)
    assert play.call_s == ASSUMED_SECONDS
    assert play.seconds == (72 * 2 / 8, 72 * 30 / 8)
    assert play.cost_usd == pytest.approx(
        tuple(
            (10 * i + 20 * o) / 1e6 for i, o in zip(play.tokens_in, play.tokens_out, strict=True)
        ),
        rel=0.05,
    )


def test_max_tokens_bounds_an_assumption(project: Project) -> None:
    forecast = ahead(project, "evaluation.agent.model.model_settings.max_tokens=50")
    assert forecast.stages[0].tokens_out == (72 * 50, 72 * 50)


async def test_a_library_that_may_stay_as_it_is_may_need_no_evaluation(project: Project) -> None:
    other = "evaluation.data.dataset=train"
    selected = (other, "practice.select_dataset=test", "practice.epochs=1")
    found = calls(ahead(project, *selected))["evaluation play"]
    assert found == (12, 24)  # the first library is evaluated, what an epoch makes of it may be
    tested = calls(ahead(project, *EVALUATED))["evaluation play"]
    assert tested == (4, 12)  # the agent without experiences, and what two steps may make of it
    await project.practise("practice.epochs=1", *EVALUATED)
    again = calls(ahead(project, "practice.epochs=1", *EVALUATED, restart_step=0))
    assert again["evaluation play"] == (0, 4)  # it may learn the same once more


def test_the_stages_add_up_to_the_total(project: Project) -> None:
    document = ahead(project, PRICED, *EVALUATED).document()
    for what in ("calls", "tokens_in", "tokens_out"):
        for end in (0, 1):
            assert document["total"][what][end] == sum(s[what][end] for s in document["stages"])
    for stage in document["stages"]:
        assert all(isinstance(n, int) for n in stage["calls"] + stage["tokens_in"])
        assert stage["calls"][0] > 0 or stage["tokens_in"][0] == 0


async def test_a_pilot_says_what_it_did(project: Project) -> None:
    found = await pilot(project, 2, PRICED)
    (played, tokens_in, tokens_out, micro) = project.query(
        "SELECT count(*), sum(tokens_in), sum(tokens_out), sum(cost_micro) FROM calls"
    )[0]
    reward = project.query("SELECT avg(reward) FROM v_rollouts")[0][0]
    did = found.piloted
    assert did is not None
    assert (did.questions, did.rollouts, did.reward) == (2, 6, reward)
    assert played >= 6
    assert (did.usage.tokens_in, did.usage.tokens_out) == (tokens_in, tokens_out)
    assert did.usage.cost_micro == micro
    second = (await pilot(project, 3, PRICED)).piloted  # two of the three are there
    assert second is not None
    assert (second.questions, second.rollouts) == (1, 3)
    assert (second.usage.tokens_in or 0) < tokens_in  # of its own only


async def test_only_what_is_left_counts(project: Project) -> None:
    await project.practise("practice.epochs=1", *EVALUATED)
    assert ahead(project, "practice.epochs=1", *EVALUATED).stages == []
    forecast = ahead(project, "practice.epochs=2", *EVALUATED)
    assert calls(forecast)["practice play"] == (36, 36)
    assert calls(forecast)["evaluation play"] == (0, 4)  # the second epoch may learn nothing
    assert forecast.groups == 12
    restarted = ahead(project, "practice.epochs=1", *EVALUATED, restart_step=1)
    assert calls(restarted)["practice play"] == (18, 18)
    assert project.query("SELECT count(*) FROM branches WHERE run_id = 'toy'") == [(1,)]


async def test_more_attempts_at_libraries_that_are_evaluated_count(project: Project) -> None:
    await project.practise("practice.epochs=1", *EVALUATED)
    more = ("practice.epochs=1", *EVALUATED, "evaluation.pass_k=3")
    found = calls(ahead(project, *more))["evaluation play"]
    report = await project.practise(*more)
    assert report.requests.new > 0
    assert found == (report.requests.new, report.requests.new)
    assert ahead(project, *more).stages == []


async def test_an_evaluation_counts_what_it_has_not_asked(project: Project) -> None:
    with Store(project.db) as store:
        found = await run_pilot(project.eval_job(store, "pass_k=2"), 9)
        assert (found.pilot, calls(found)) == (9, {"evaluation play": (6, 6)})
    steps = {status for (status,) in project.query("SELECT status FROM steps")}
    assert steps.isdisjoint({"closed"})
    report = await project.evaluate("pass_k=2")
    assert report.requests.new == 6
    with Store(project.db, "foresee") as store:
        assert forecast_of_job(project.eval_job(store, "pass_k=2")).stages == []


def test_a_judge_is_counted_where_the_function_asks_one(project: Project) -> None:
    judged = calls(ahead(project, "evaluation.verify=judge", "practice.epochs=1"))
    assert judged["practice judge"] == (36, 36)
    (project.folder / "mine.py").write_text(
        "async def check(sample, timeout_score=0, **kwargs):\n    return {'reward': 1.0}\n"
    )
    may = calls(ahead(project, "evaluation.verify=mine.py:check", "practice.epochs=1"))
    assert may["practice judge"] == (0, 36)


async def test_a_pilot_is_kept_and_nothing_is_paid_twice(project: Project, tmp_path: Path) -> None:
    whole = await finished(tmp_path / "whole")
    forecast = await pilot(project, 2)
    assert forecast.pilot == 2
    (piloted,) = project.query("SELECT count(*) FROM calls")[0]
    assert 6 <= piloted < 20
    assert calls(forecast)["practice play"] == (66, 66)
    assert forecast.stages[0].history == 6
    assert project.query("SELECT status, step FROM steps WHERE status <> 'planned'") == [
        ("open", 0)
    ]
    assert project.query("SELECT status FROM runs") == [("paused",)]
    report = await project.practise()
    assert project.results() == whole.results()
    (needed,) = whole.query("SELECT count(*) FROM calls")[0]
    assert report.requests.new == needed - piloted
    assert project.query("SELECT count(*) FROM calls") == [(needed,)]


async def test_a_pilot_distils_and_its_lessons_are_not_paid_again(project: Project) -> None:
    async with served() as endpoint:
        settings = (endpoint.override(), ALWAYS, "practice.seed=2", "practice.epochs=1")
        found, stages = await pilot(project, 6, *settings), endpoint.by_stage
        assert stages["summarise"] >= 2
        assert found.share is not None
        assert calls(found)["practice summarise"].high == ceil(
            found.share.high * 12 * 3 - stages["summarise"]
        )
        await project.practise(*settings)
        asked = [(b["seed"], str(b["messages"])) for b in endpoint.bodies]
        assert len(asked) == len(set(asked))
    assert "merge" not in stages


async def test_failures_are_held_against_what_the_pilot_plays(project: Project) -> None:
    """Of its six rollouts a fifth is one; of the step's eighteen it would be three."""

    def some(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n <= 2 else None

    async with served(some) as endpoint:
        with pytest.raises(RunFailedError, match="2 of the 6 rollouts of step 0"):
            await pilot(project, 2, "practice.rollout_concurrency=1", endpoint.override())


async def test_a_pilot_of_a_run_that_is_done_plays_nothing(project: Project) -> None:
    await project.practise("practice.epochs=1")
    before = project.query("SELECT count(*) FROM calls")
    assert (await pilot(project, 2, "practice.epochs=1")).stages == []
    assert project.query("SELECT count(*) FROM calls") == before
    assert project.query("SELECT status FROM runs") == [("done",)]


async def test_the_configuration_may_change_after_a_pilot(project: Project) -> None:
    await pilot(project, 2)
    report = await project.practise("practice.epochs=1", "practice.num_experiences_per_query=1")
    assert [row.status for row in report.steps] == ["closed", "closed"]
    assert report.requests.new == project.query("SELECT count(*) FROM calls")[0][0] - 6


def forecast_of(*lines: Line, spent: Amount, caps: Caps) -> Forecast:
    return Forecast("toy", False, lines, Account(caps, spent))


def line(**given: Any) -> Line:
    some = Range(10, 20)
    known = Line(
        "practice", "play", "m", some, Range(100, 200), Range(50, 90), Range(1, 2), some, some, 1
    )
    return replace(known, **given)


def test_it_says_whether_a_cap_would_be_reached() -> None:
    spent = Amount(100, 1_000, 500_000)
    for caps, said in (
        (Caps(120, 1_290, 2_500_000), ["no", "no", "no"]),
        (Caps(115, 1_200, 2_000_000), ["maybe"] * 3),
        (Caps(109, 1_149, 1_499_999), ["yes"] * 3),
    ):
        found = forecast_of(line(), spent=spent, caps=caps)
        assert [cap.reached for cap in found.caps] == said
    assert forecast_of(line(), spent=spent, caps=Caps(requests=5)).caps == [
        PlannedCap("--max-requests", 5, "yes")
    ]


def test_one_model_without_a_price_makes_the_cost_unknown() -> None:
    found = forecast_of(line(), line(model="x", cost_usd=None), spent=Amount(), caps=Caps())
    assert (found.total.cost_usd, found.unpriced) == (None, ["x"])
    assert found.document()["total"]["cost_usd"] is None
    assert forecast_of(line(), line(), spent=Amount(), caps=Caps()).total.cost_usd == (2, 4)


def test_the_door_of_a_session_is_the_one_the_forecast_looks_at(project: Project) -> None:
    project.max_requests = 10
    with Store(project.db, "foresee") as store:
        found = forecast_of_job(project.practice_job(store))
    assert found.document()["caps"] == [{"flag": "--max-requests", "cap": 10, "reached": "yes"}]


def test_every_stage_that_asks_a_model_is_forecast(project: Project) -> None:
    found = ahead(project, ALWAYS, "evaluation.verify=judge")
    left_out = {*STAGES} - {"tool", "direct"} - {line.stage for line in found.stages}
    assert not left_out, (
        f"{left_out}: say in `_practice_calls` (run/forecast/remaining_calls.py) how many calls"
        " there are, and in ASSUMED (run/forecast/estimate.py) what one takes"
    )


async def test_the_attempts_of_a_group_are_those_that_were_planned(project: Project) -> None:
    await pilot(project, 1)
    with Store(project.db, "foresee") as store:
        job = project.practice_job(store, ALWAYS)
        more = job.config.practice.model_copy(update={"grpo_n": 50})
        config = job.config.model_copy(update={"practice": more})
        changed = replace(job, loaded=replace(job.loaded, config=config))
        branch = store.read(branches.load, 1)
        rows = store.read(steps.on_line, branch)
        found = remaining_calls._practice_calls(
            store, changed, branch, rows, Range(1, 1), remaining_calls._Learning(Library(), {}, 0.0)
        )
    assert {x.stage: x.calls.high for x in found}["summarise"] == 72
