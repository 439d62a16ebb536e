"""The public Python API: a database of runs, datasets and experiences, and its operations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from grpo_practice.api.played_runs import PlayedRuns
from grpo_practice.api.stored_runs import RolloutOptions as RolloutOptions
from grpo_practice.api.stored_runs import StoredRuns
from grpo_practice.core.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.config import Environment as Environment
    from grpo_practice.config.input import ConfigInput
    from grpo_practice.core.events import Emit
    from grpo_practice.core.types import Sample
    from grpo_practice.reports.export_report import Exported
    from grpo_practice.reports.training import TrainedExport
    from grpo_practice.run.any_config import ConfigReport as ConfigReport
    from grpo_practice.run.datasets import Datasets
    from grpo_practice.run.doctor.doctor import Diagnosis as Diagnosis
    from grpo_practice.run.doctor.doctor import SliceCheck
    from grpo_practice.run.forecast.estimate import Forecast as Forecast
    from grpo_practice.run.forecast.estimate import Line as Line
    from grpo_practice.run.forecast.estimate import Way as Way
    from grpo_practice.run.forecast.range import Range as Range
    from grpo_practice.run.score_answer import ScoredAnswer
    from grpo_practice.run.trusting import TrustReport
    from grpo_practice.store.queries.spending import Piloted as Piloted


def environment(
    trust: "Sequence[str | Path]" = (), trust_hosts: Sequence[str] = ()
) -> "Environment":
    """Return the variables of this process and of `.env`, for the `env` argument of a method.

    Args:
        trust: Files by other people that you have read and trust: agent files, or the database.
        trust_hosts: Hosts to which the configuration may send keys.

    Raises:
        ConfigError: The `.env` file cannot be read.
    """
    from grpo_practice.config.input import known

    return known(None, [Path(file) for file in trust], trust_hosts)


class Workspace(StoredRuns, PlayedRuns):
    """A database and the core's operations on it; slices derive from this class to add methods."""

    @property
    def datasets(self) -> "Datasets":
        """Datasets of this database."""
        from grpo_practice.run.datasets import Datasets

        return Datasets(self._store)

    def configuration(
        self,
        config: "ConfigInput | None" = None,
        sets: Sequence[str] = (),
        *,
        agent: str | Path | None = None,
        env: "Mapping[str, str] | None" = None,
    ) -> "ConfigReport":
        """Load a configuration; without one, load the configuration of the latest run.

        Programs and code that the configuration names are not run.

        Args:
            config: As for `evaluate`; None selects the latest run's configuration.
            sets: Overrides, `KEY=VALUE`.
            agent: Agent file to be evaluated with this configuration.
            env: Variables that the configuration may name; None uses the process's and `.env`.

        Raises:
            ConfigError: There is no configuration, or it cannot be used.
        """
        from grpo_practice.config.input import known
        from grpo_practice.run.any_config import config_report, load_config

        file = None if agent is None else Path(agent)
        # Inspecting an agent needs no database; other calls report that it is missing.
        unmade = file is not None and not self.path.exists()
        open_store = None if unmade else self._store
        return config_report(load_config(config, sets, known(env), open_store, agent=file))

    def export(
        self,
        run: str | None = None,
        step: str | int = "last",
        *,
        format: str | None = None,
        output: str | Path | None = None,
        force: bool = False,
    ) -> "Exported":
        """Return the agent with its learnt experiences; if `output` is given, write it there.

        Args:
            run: `RUN`, `RUN@BRANCH`, `RUN:STEP` or `L12`; None selects the latest practice run.
            step: `last`, `best`, or the number of a closed step.
            format: Export format; None chooses it by the name of the file.
            output: File or folder to write.
            force: Whether to replace an existing file. A format that is one section of a file does
                not need it: all other text of the file is kept.

        Raises:
            ConfigError: The library does not exist, or the file cannot be written.
        """
        from grpo_practice.core.files import write_files
        from grpo_practice.reports.agent_formats import FORMATS, format_by_name, render_files
        from grpo_practice.reports.before_after import before_after
        from grpo_practice.reports.export_report import Exported
        from grpo_practice.run.agent_export import call_of_program, exported, remember_export
        from grpo_practice.run.library_refs import library_of

        format = format or format_by_name(str(output or ""))
        path = None if output is None else Path(output)
        with self._store() as store:
            found = library_of(store, run, str(step))
            scores = before_after(store, found.branch, found.run, found.library)
            agent = exported(store, found, scores)
            agent = replace(agent, place="" if path is None else path.absolute().name)
            # Render before writing, so that an error leaves an existing file as it is.
            files = render_files(agent, format)
            if FORMATS[format].loadable:
                remember_export(store, found, files[""])
        if path is not None and (put := FORMATS[format].put):
            put(path, files[""])
        elif path is not None:
            write_files(path, files, force=force)
        call = call_of_program(agent, repr(self))
        named = f" --run {quote(run or found.run)}" + (f" --step {step}" if step != "last" else "")
        return Exported(agent, files, format, path, call, scores, named)

    def export_trained(
        self,
        run: str,
        step: str | int = "last",
        *,
        output: str | Path | None = None,
        whole: bool = False,
        force: bool = False,
    ) -> "TrainedExport":
        """Raise ConfigError: the slice that trains weights writes them, too."""
        raise ConfigError("trained weights need `train`, which this program does not have")

    def doctor(
        self,
        config: "ConfigInput | None" = None,
        *,
        sets: Sequence[str] = (),
        agent: str | Path | None = None,
        run: bool = False,
        env: "Mapping[str, str] | None" = None,
        on_event: "Emit | None" = None,
    ) -> "Diagnosis":
        """Check everything a run needs before it costs money; return problems, never raise them.

        The check sends two or three tiny requests to each endpoint, and a tiny comparison to the
        teacher.

        Args:
            config: As for `evaluate`; None selects the latest run's configuration.
            sets: Overrides, `KEY=VALUE`.
            agent: Agent file to be evaluated with this configuration.
            run: Whether to also try the programs that the configuration names.
            env: Variables that the configuration may name; None uses the process's and `.env`.
            on_event: Callback for notices about the requests that are sent.
        """
        from grpo_practice.run.waiting import run_blocking

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
        on_event: "Emit | None" = None,
    ) -> "Diagnosis":
        """Check as `doctor` does, on the running event loop."""
        from grpo_practice.core.events import Notice, silent, tee
        from grpo_practice.run.doctor.doctor import DoctorRequest, diagnose

        request = DoctorRequest(
            database=self.path,
            config=config,
            overrides=sets,
            agent=None if agent is None else Path(agent),
            run=run,
            env=env,
            slice_checks=self._slice_checks(),
        )
        emit = tee(on_event or silent)
        return await diagnose(request, lambda text: emit(Notice(text)))

    def _slice_checks(self) -> "list[SliceCheck]":
        """Return additional `doctor` checks for a practice configuration; a slice may add some."""
        return []

    def trust(
        self, *paths: str | Path, hosts: Sequence[str] = (), keys: Sequence[str] = ()
    ) -> "TrustReport":
        """Remember that you trust files and folders by other people; return everything you trust.

        Args:
            paths: Files or whole folders. A file is trusted until its text changes: an agent file,
                when used from the current folder, or a database with the configurations stored in
                it.
            hosts: Hosts that may receive each of the keys.
            keys: Names of variables that hold keys, for instance `UTU_LLM_API_KEY`.

        Raises:
            ConfigError: A file does not exist, or the trust cannot be stored.
        """
        from grpo_practice.run.trusting import trust

        return trust([Path(path) for path in paths], hosts, keys)

    def score_answer(
        self,
        function: str,
        sample: "Sample",
        response: str,
        params: "Mapping[str, Any] | None" = None,
        *,
        env: "Mapping[str, str] | None" = None,
        on_event: "Emit | None" = None,
    ) -> "ScoredAnswer":
        """Score a single response, as `run.score_answer` does. Nothing is stored."""
        from grpo_practice.core.events import silent
        from grpo_practice.run.score_answer import score_answer
        from grpo_practice.run.waiting import run_blocking

        emit = on_event or silent
        return run_blocking(
            score_answer(function, sample, response, params, env=env, on_event=emit)
        )
