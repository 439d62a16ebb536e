"""The forecast of a measurement of experiences: its calls, and how exact it will be."""

from pathlib import Path

import pytest

from grpo_practice.app.evaluation_run import spec_of
from grpo_practice.forecast.effect import forecast_effect
from grpo_practice.store import Store
from tests.app.test_effect import HELD, Measured, measurable


@pytest.fixture
async def project(tmp_path: Path) -> Measured:
    return await measurable(tmp_path)


async def test_a_forecast_says_how_exact_it_will_be(project: Measured) -> None:
    with Store(project.db) as store:
        job = project.effect_job(store, k=4)
        forecast = forecast_effect(job)
    calls = {line.part: line.calls.high for line in forecast.lines}
    assert calls == {"effect": HELD * 4, "full": HELD, "none": HELD}
    assert forecast.effect is not None
    low, high = forecast.effect.se
    m = len(job.found.library)
    # From the same effect on all questions to one question for each experience, at σ² = 0.
    assert low == pytest.approx(2 * (0.05 / (HELD * 4)) ** 0.5)
    assert high == pytest.approx(((4 + 2 * (m - 1)) / m / (HELD * 4)) ** 0.5)
    assert not forecast.effect.measured
    assert forecast.document()["effect"]["rollouts"] == HELD * 4
    assert spec_of(job.evaluations["effect"]).role == "effect"


async def test_a_forecast_rests_on_the_effects_that_were_measured(project: Measured) -> None:
    found = await project.measure(k=4)
    errors = [one.se for one in found.found.experiences if one.se is not None]
    for k in (4, 16):
        with Store(project.db, "scratch") as store:
            planned = forecast_effect(project.effect_job(store, k=k)).effect
        assert planned is not None
        assert planned.measured
        # Four times the rollouts: half the noise; but no more questions, which differ as before.
        m = len(found.found.library)
        wider = ((k + 2 * (m - 1)) / (4 + 2 * (m - 1)) * 4 / k) ** 0.5
        assert planned.se == pytest.approx(
            (min(errors) * (4 / k) ** 0.5, max(errors) * wider), abs=1e-9
        )
    again = [one.se for one in (await project.measure(k=16)).found.experiences]
    assert planned is not None
    assert all(planned.se.low < se < planned.se.high for se in again if se is not None)


async def test_a_forecast_rests_on_what_the_library_did_question_by_question(
    project: Measured,
) -> None:
    await project.practise("exp_id=tested", "practice.do_eval=true", "evaluation.pass_k=4")
    with Store(project.db, "scratch") as store:
        planned = forecast_effect(project.effect_job(store, library="tested")).effect
    assert planned is not None
    assert planned.measured
    report = await project.measure(library="tested")
    measured = [one.se for one in report.found.experiences]
    assert all(planned.se.low < se < planned.se.high for se in measured if se is not None)
