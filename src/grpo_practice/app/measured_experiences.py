"""Measuring what experiences do: the part of `Workspace` that asks about each of a library."""

from functools import partial
from typing import TYPE_CHECKING, Unpack

from grpo_practice.app.run_calls import RunCalls

if TYPE_CHECKING:
    from grpo_practice.app.options import EffectOptions
    from grpo_practice.reports.effects import EffectsReport
    from grpo_practice.reports.pruning import PruneReport


class MeasuredExperiences(RunCalls):
    """Effects of experiences; a base of `Workspace`."""

    def effects(
        self,
        library: str | None = None,
        *,
        step: str = "last",
        k: int | None = None,
        **options: "Unpack[EffectOptions]",
    ) -> "EffectsReport":
        """Measure what each experience of a library does, on questions that are not evaluated on.

        Each rollout is shown half of the library; the whole and none are played together with them.
        The same call goes on where one stopped, and pays nothing twice.

        Args:
            library: `RUN[:STEP]` or `L12`; None: that of the latest practice run.
            step: Step after which it was the library: `last`, `best` or a number.
            k: Rollouts of a question, an even number; None: 8, or as many as are planned already.
            options: See `EffectOptions`; `dataset` is by default `practice.select_dataset`.

        Raises:
            GrpoPracticeError: As `evaluate`.
        """
        from grpo_practice.app.effect_run import run_effect
        from grpo_practice.app.options import effect_job

        with self._job(partial(effect_job, (step, k)), library, options) as job:
            return self._wait(job.session, run_effect(job))

    async def effects_async(
        self,
        library: str | None = None,
        *,
        step: str = "last",
        k: int | None = None,
        **options: "Unpack[EffectOptions]",
    ) -> "EffectsReport":
        """Measure as `effects` does, on the loop that is running. Cancel it to stop it."""
        from grpo_practice.app.effect_run import run_effect
        from grpo_practice.app.options import effect_job

        with self._job(partial(effect_job, (step, k)), library, options) as job:
            return await run_effect(job)

    def prune(
        self,
        library: str | None = None,
        *,
        step: str = "last",
        max_tokens: int | None = None,
    ) -> "PruneReport":
        """Make a library without the experiences that are likely to do harm, as `effects` found.

        No gain is claimed: `evaluate_arms` measures one. The run keeps its own library.

        Args:
            library: `RUN[:STEP]` or `L12`; None: that of the latest practice run.
            step: Step after which it was the library: `last`, `best` or a number.
            max_tokens: Most tokens of the new library; then the best of those that fit are kept.

        Raises:
            ConfigError: There is no such library, its experiences are not measured, or none of
                them fits.
        """
        from grpo_practice.app.pruning import prune

        with self._store() as store:
            return prune(store, library, step, max_tokens)
