"""Methods of `Workspace` that measure individual experiences."""

from typing import TYPE_CHECKING

from grpo_practice.api.played_runs import takes
from grpo_practice.api.workspace import Workspace as Core
from grpo_practice.effects.request import EffectRequest

if TYPE_CHECKING:
    from grpo_practice.effects.pruning import PruneReport
    from grpo_practice.reports.effects import EffectsReport
    from grpo_practice.run.forecast.estimate import Forecast


class Effects(Core):
    """Measurement of each experience of a library, and removal of harmful experiences."""

    @takes(EffectRequest)
    def effects(self, request: EffectRequest) -> "EffectsReport":
        """Measure the effect of each experience of a library, on questions not used in evaluations.

        The prompt of each rollout contains a random half of the library. Rollouts with the whole
        library and with no library are played at the same time. The same call continues an
        unfinished measurement without paying for anything twice.

        Raises:
            GrpoPracticeError: The run could not be completed. All answers so far are stored, and
                the same call continues from there.
        """
        from grpo_practice.effects.effect_run import prepare_effect, run_effect

        return self._complete(request, prepare_effect, run_effect)

    @takes(EffectRequest)
    async def effects_async(self, request: EffectRequest) -> "EffectsReport":
        """Measure as `effects` does, on the running event loop. Cancel the task to stop."""
        from grpo_practice.effects.effect_run import prepare_effect, run_effect

        with self._job(request, prepare_effect) as job:
            return await run_effect(job)

    @takes(EffectRequest)
    def forecast_effects(self, request: EffectRequest) -> "Forecast":
        """Return the remaining work of `effects`, and its expected precision."""
        from grpo_practice.effects.effect_run import forecast_effect, prepare_effect

        with self._job(request, prepare_effect, foresee=True) as job:
            return forecast_effect(job)

    def prune(
        self,
        library: str | None = None,
        *,
        step: str = "last",
        max_tokens: int | None = None,
    ) -> "PruneReport":
        """Make a new library without the experiences that `effects` measured as probably harmful.

        The report does not claim a gain; measure it with `evaluate_arms`. The practice run keeps
        its own library.

        Args:
            library: `RUN[:STEP]` or `L12`; None selects the library of the latest practice run.
            step: Step whose library to prune: `last`, `best` or a number.
            max_tokens: Maximum size of the new library; the best experiences that fit are kept.

        Raises:
            ConfigError: The library does not exist, the effects of its experiences were not
                measured, or no experience fits.
        """
        from grpo_practice.effects.pruning import prune

        with self._store() as store:
            return prune(store, library, step, max_tokens)
