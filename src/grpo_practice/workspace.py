"""The public Python API: a database of runs, datasets and experiences, and what is done with it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from grpo_practice.app.data_exports import DataExports
from grpo_practice.app.measured_experiences import MeasuredExperiences
from grpo_practice.app.served_agents import PORT as PORT
from grpo_practice.app.served_agents import ServedAgents
from grpo_practice.app.stored_runs import RolloutOptions as RolloutOptions
from grpo_practice.app.stored_runs import StoredRuns
from grpo_practice.app.traced_runs import TracedRuns
from grpo_practice.app.training import Training
from grpo_practice.app.without_database import WithoutDatabase
from grpo_practice.events import Emit, Notice, silent, tee
from grpo_practice.see.viewed_runs import VIEW_PORT as VIEW_PORT
from grpo_practice.see.viewed_runs import ViewedRuns
from grpo_practice.see.workspace_pages import RunPages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_practice.app.arms import ArmsJob
    from grpo_practice.app.datasets import Datasets
    from grpo_practice.app.evaluation_run import EvalJob
    from grpo_practice.app.options import EffectOptions as EffectOptions
    from grpo_practice.app.options import EvalOptions as EvalOptions
    from grpo_practice.app.options import PracticeOptions as PracticeOptions
    from grpo_practice.app.options import TrainOptions as TrainOptions
    from grpo_practice.app.practice_run import PracticeJob
    from grpo_practice.app.request import ConfigInput
    from grpo_practice.app.serving import Served as Served
    from grpo_practice.app.training_data import DataOptions as DataOptions
    from grpo_practice.config import Environment as Environment
    from grpo_practice.doctor.diagnosis import Diagnosis as Diagnosis
    from grpo_practice.forecast.estimate import Forecast as Forecast
    from grpo_practice.forecast.estimate import Line as Line
    from grpo_practice.forecast.range import Range as Range
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.config_report import ConfigReport
    from grpo_practice.reports.run_reports import EvalReport, PracticeReport
    from grpo_practice.see.server import Viewed as Viewed
    from grpo_practice.store.queries.spending import Piloted as Piloted


def environment(
    trust: "Sequence[str | Path]" = (), trust_hosts: Sequence[str] = ()
) -> "Environment":
    """Return the process's variables and those of `.env`, to be given to a method as `env`.

    Args:
        trust: Files of others that you have read and trust: an agent's, or the database.
        trust_hosts: Hosts that may be sent the keys that would go there.

    Raises:
        ConfigError: There is a `.env` that cannot be read.
    """
    from grpo_practice.app.request import known

    return known(None, [Path(file) for file in trust], trust_hosts)


class Workspace(
    StoredRuns,
    ServedAgents,
    MeasuredExperiences,
    RunPages,
    ViewedRuns,
    DataExports,
    TracedRuns,
    Training,
    WithoutDatabase,
):
    """A database, and what is done with it; also a context manager, sync or async.

    Each call opens the file and closes it again, so that a workspace may be kept for as long as
    one likes, and be used by several threads, event loops and processes.

    Args:
        path: SQLite file; made by the first call that writes.
        command: Command to put on record for runs; None names the method that was called.
        signals: Whether a blocking call stops in order at SIGINT, SIGTERM or SIGHUP and raises
            StoppedError. Only for a program's main thread; else Ctrl-C is a KeyboardInterrupt.
    """

    # Data and configuration

    @property
    def datasets(self) -> "Datasets":
        """The datasets of this database."""
        from grpo_practice.app.datasets import Datasets

        return Datasets(self._store)

    def configuration(
        self,
        config: "ConfigInput | None" = None,
        sets: Sequence[str] = (),
        *,
        agent: str | Path | None = None,
        env: "Mapping[str, str] | None" = None,
    ) -> "ConfigReport":
        """Load a configuration; without one, that of the latest run.

        Nothing that it names is run.

        Args:
            config: As for `evaluate`; None: the latest run's configuration.
            sets: Overrides, `KEY=VALUE`.
            agent: File of an agent to be evaluated so.
            env: Variables that it may name; None: the process's, and those of `.env`.

        Raises:
            ConfigError: There is none, or it cannot be used.
        """
        from grpo_practice.app.any_config import config_report, load_config
        from grpo_practice.app.request import known

        file = None if agent is None else Path(agent)
        # An agent can be looked at where there is no database; else that is what is said.
        unmade = file is not None and not self.path.exists()
        open_store = None if unmade else self._store
        return config_report(load_config(config, sets, known(env), open_store, agent=file))

    def doctor(
        self,
        config: "ConfigInput | None" = None,
        *,
        sets: Sequence[str] = (),
        agent: str | Path | None = None,
        run: bool = False,
        env: "Mapping[str, str] | None" = None,
        on_event: Emit = silent,
    ) -> "Diagnosis":
        """Check all that a run needs before it costs; problems are in the result, never raised.

        Each endpoint is asked two tiny questions; the teacher makes one tiny comparison.

        Args:
            config: As for `evaluate`; None: the latest run's configuration.
            sets: Overrides, `KEY=VALUE`.
            agent: File of an agent to be evaluated so.
            run: Whether to try the programs that the configuration names, too.
            env: Variables that it may name; None: the process's, and those of `.env`.
            on_event: Told what is being asked.
        """
        from grpo_practice.app.blocking import run_blocking

        work = self.doctor_async(
            config, sets=sets, agent=agent, run=run, env=env, on_event=on_event
        )
        return run_blocking(work)

    async def doctor_async(
        self,
        config: "ConfigInput | None" = None,
        *,
        sets: Sequence[str] = (),
        agent: str | Path | None = None,
        run: bool = False,
        env: "Mapping[str, str] | None" = None,
        on_event: Emit = silent,
    ) -> "Diagnosis":
        """Check as `doctor` does, on the loop that is running."""
        from grpo_practice.doctor.diagnose import DoctorRequest, diagnose

        request = DoctorRequest(
            database=self.path,
            config=config,
            overrides=sets,
            agent=None if agent is None else Path(agent),
            run=run,
            env=env,
        )
        return await diagnose(request, lambda text: tee(on_event)(Notice(text)))

    # Practice and evaluation

    def evaluate(
        self, config: "ConfigInput | None" = None, **options: "Unpack[EvalOptions]"
    ) -> "EvalReport":
        """Evaluate an agent on a dataset; what is stored is not asked again.

        The call works inside a running event loop, too: a notebook's.

        Args:
            config: File, name in ./configs, mapping or typed config; None goes on with the latest
                run, or takes all from the options.
            options: See `EvalOptions`.

        Raises:
            GrpoPracticeError: The evaluation could not be completed; all that was answered is
                stored, and the same call goes on from there.
        """
        from grpo_practice.app.evaluation_run import run_eval
        from grpo_practice.app.options import eval_job

        with self._job(eval_job, config, options) as job:
            return self._wait(job.session, run_eval(job))

    async def evaluate_async(
        self, config: "ConfigInput | None" = None, **options: "Unpack[EvalOptions]"
    ) -> "EvalReport":
        """Evaluate as `evaluate` does, on the loop that is running. Cancel it to stop it."""
        from grpo_practice.app.evaluation_run import run_eval
        from grpo_practice.app.options import eval_job

        with self._job(eval_job, config, options) as job:
            return await run_eval(job)

    def evaluate_arms(
        self,
        arms: Sequence[str],
        config: "ConfigInput | None" = None,
        *,
        step: str = "last",
        **options: "Unpack[EvalOptions]",
    ) -> "ComparisonReport":
        """Evaluate an agent with and without what it learnt, played together, and compare.

        Args:
            arms: Two or more of `none`, `full` (the library), `aa` (the same under another seed),
                `direct` (written by the teacher without practice), `filler` (about other things),
                libraries (`L12`), and files of libraries and agents. Each is the evaluation that it
                would be alone; complete ones are not played again, unless `again` says so.
            config: As for `evaluate`; None: that of the practice run worked on last.
            step: Step of the practice run whose library it is about: `last`, `best` or a number.
            options: See `EvalOptions`; no `agent`, `library` or `rejudge`.

        Raises:
            GrpoPracticeError: As `evaluate`.
        """
        from grpo_practice.app.arms import run_arms
        from grpo_practice.app.options import arms_job

        with self._job(partial(arms_job, (arms, step)), config, options) as job:
            return self._wait(job.session, run_arms(job))

    async def evaluate_arms_async(
        self,
        arms: Sequence[str],
        config: "ConfigInput | None" = None,
        *,
        step: str = "last",
        **options: "Unpack[EvalOptions]",
    ) -> "ComparisonReport":
        """Evaluate as `evaluate_arms` does, on the loop that is running. Cancel it to stop it."""
        from grpo_practice.app.arms import run_arms
        from grpo_practice.app.options import arms_job

        with self._job(partial(arms_job, (arms, step)), config, options) as job:
            return await run_arms(job)

    def practise(
        self, config: "ConfigInput | None" = None, **options: "Unpack[PracticeOptions]"
    ) -> "PracticeReport":
        """Let an agent practise; a run goes on where it stopped, and pays nothing twice.

        Args:
            config: File, name in ./configs, mapping or typed config; None goes on with the latest
                practice run, else takes the practice.yaml of the current folder.
            options: See `PracticeOptions`.

        Raises:
            GrpoPracticeError: The run could not be completed; as `evaluate`.
        """
        from grpo_practice.app.options import practice_job
        from grpo_practice.app.practice_run import run_practice

        with self._job(practice_job, config, options) as job:
            return self._wait(job.session, run_practice(job))

    async def practise_async(
        self, config: "ConfigInput | None" = None, **options: "Unpack[PracticeOptions]"
    ) -> "PracticeReport":
        """Practise as `practise` does, on the loop that is running. Cancel it to stop it."""
        from grpo_practice.app.options import practice_job
        from grpo_practice.app.practice_run import run_practice

        with self._job(practice_job, config, options) as job:
            return await run_practice(job)

    def forecast_evaluation(
        self,
        config: "ConfigInput | None" = None,
        *,
        pilot: int | None = None,
        **options: "Unpack[EvalOptions]",
    ) -> "Forecast":
        """Return what `evaluate` with these arguments has left to do and to pay.

        Args:
            config: As for `evaluate`.
            pilot: Questions to ask first, and to keep, for a better forecast; None asks nothing
                and writes nothing.
            options: See `EvalOptions`.
        """
        from grpo_practice.app.options import check_least, eval_job

        check_least("pilot", pilot, 1)
        with self._job(eval_job, config, options, foresee=pilot is None) as job:
            return self._forecast(job, pilot)

    def forecast_arms(
        self,
        arms: Sequence[str],
        config: "ConfigInput | None" = None,
        *,
        step: str = "last",
        pilot: int | None = None,
        **options: "Unpack[EvalOptions]",
    ) -> "Forecast":
        """Return what `evaluate_arms` has left to do and to pay; see `forecast_evaluation`."""
        from grpo_practice.app.options import arms_job, check_least

        check_least("pilot", pilot, 1)
        prepare = partial(arms_job, (arms, step))
        with self._job(prepare, config, options, foresee=pilot is None) as job:
            return self._forecast(job, pilot)

    def forecast_practice(
        self,
        config: "ConfigInput | None" = None,
        *,
        pilot: int | None = None,
        **options: "Unpack[PracticeOptions]",
    ) -> "Forecast":
        """Return what `practise` with these arguments has left to do and to pay.

        Args:
            config: As for `practise`.
            pilot: Groups of the next step to play first, and to keep; None plays nothing and
                writes nothing.
            options: See `PracticeOptions`.
        """
        from grpo_practice.app.options import check_least, practice_job

        check_least("pilot", pilot, 1)
        with self._job(practice_job, config, options, foresee=pilot is None) as job:
            return self._forecast(job, pilot)

    def forecast_effects(
        self,
        library: str | None = None,
        *,
        step: str = "last",
        k: int | None = None,
        **options: "Unpack[EffectOptions]",
    ) -> "Forecast":
        """Return what `effects` with these arguments has left to do, and how exact it will be."""
        from grpo_practice.app.options import effect_job
        from grpo_practice.pilot import forecast_of

        with self._job(partial(effect_job, (step, k)), library, options, foresee=True) as job:
            return forecast_of(job)

    def _forecast(self, job: "PracticeJob | EvalJob | ArmsJob", pilot: int | None) -> "Forecast":
        if pilot is not None:
            from grpo_practice.pilot import run_pilot

            return self._wait(job.session, run_pilot(job, pilot))
        from grpo_practice.pilot import forecast_of

        return forecast_of(job)
