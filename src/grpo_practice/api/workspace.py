"""The public Python API: a database of runs, datasets and experiences, and its operations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.api.played_runs import PlayedRuns
from grpo_practice.api.stored_runs import RolloutOptions as RolloutOptions
from grpo_practice.api.stored_runs import StoredRuns

if TYPE_CHECKING:
    from grpo_practice.config import Environment as Environment
    from grpo_practice.config.input import ConfigInput
    from grpo_practice.core.events import Emit
    from grpo_practice.core.types import Sample
    from grpo_practice.run.any_config import ConfigReport as ConfigReport
    from grpo_practice.run.datasets import Datasets
    from grpo_practice.run.doctor.doctor import Diagnosis as Diagnosis
    from grpo_practice.run.doctor.doctor import SliceCheck
    from grpo_practice.run.forecast.estimate import Forecast as Forecast
    from grpo_practice.run.forecast.estimate import Line as Line
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
