"""Forecast of an effect measurement: its calls, and its expected precision."""

from dataclasses import replace

from grpo_practice.effects.effect_run import EffectJob
from grpo_practice.run.evaluation_run import wanted_rollouts
from grpo_practice.run.forecast.arms import together
from grpo_practice.run.forecast.estimate import Forecast
from grpo_practice.run.forecast.power import planned_effect
from grpo_practice.run.forecast.remaining_calls import forecast
from grpo_practice.store.records import EFFECT


def forecast_effect(job: EffectJob) -> Forecast:
    """Return the remaining work of a measurement, and its expected standard error."""
    measured = job.evaluations[EFFECT]
    k = measured.config.pass_k
    planned = planned_effect(
        job.session.store,
        measured.config.exp_id,
        measured.spec.library,
        wanted_rollouts(measured) // k,
        k,
    )
    parts = {part: forecast(evaluation) for part, evaluation in job.evaluations.items()}
    lines = [replace(line, part=part) for part, of in parts.items() for line in of.stages]
    return replace(together(parts, lines), power=None, effect=planned)
