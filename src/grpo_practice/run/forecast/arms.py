"""Forecast of evaluations that are played together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grpo_practice.llm.prices import Prices
from grpo_practice.run.arms import ArmsJob
from grpo_practice.run.forecast.estimate import Forecast, Line, StageCalls, forecast_line
from grpo_practice.run.forecast.range import ONE
from grpo_practice.run.forecast.remaining_calls import forecast


def forecast_arms(job: ArmsJob) -> Forecast:
    """Return the remaining work of all arms; each line names its arm."""
    store, direct = job.session.store, job.direct
    if direct is not None:
        # The library of `direct` is not written yet. Assume that it will be as long as `full`.
        stand_in = job.evaluations["direct"]
        spec = replace(stand_in.spec, name=f"{stand_in.spec.name}/direct")
        # Set `again`, because stored answers with the library of `full` do not count for `direct`.
        afresh = replace(job.session, again=True)
        stand_in = replace(stand_in, spec=spec, session=afresh)
        evaluations = {**job.evaluations, "direct": stand_in}
        job = replace(job, evaluations=evaluations)
    parts = {arm: forecast(evaluation) for arm, evaluation in job.evaluations.items()}
    lines = [replace(line, part=arm) for arm, part in parts.items() for line in part.stages]
    if direct is not None:
        config = direct.loaded.config
        asked = StageCalls("practice", "direct", config.teacher, ONE, 1)
        prices = Prices(config.evaluation.prices)
        lines.append(forecast_line(store, prices, direct.learnt.run, asked))
    return together(parts, lines)


def together(parts: Mapping[str, Forecast], lines: Sequence[Line]) -> Forecast:
    """Return the forecast of runs that are played together, with the given lines."""
    first, *_ = parts.values()
    several = [part.turns for part in parts.values() if part.turns is not None]
    return replace(
        first,
        run=" ".join(part.run for part in parts.values() if part.stages) or first.run,
        simulated=any(part.simulated for part in parts.values()),
        stages=lines,
        turns=max(several, key=lambda turns: turns.each.high, default=None),
    )
