"""The public Python API: a database of runs, datasets and experiences, and its operations."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from grpo_practice.api.libraries import Libraries
from grpo_practice.api.played_runs import PlayedRuns
from grpo_practice.api.stored_runs import RolloutOptions as RolloutOptions
from grpo_practice.api.stored_runs import StoredRuns

if TYPE_CHECKING:
    from grpo_practice.config import Environment as Environment
    from grpo_practice.config.input import ConfigInput
    from grpo_practice.core.events import Emit
    from grpo_practice.core.types import Sample
    from grpo_practice.export.training_data import DataOptions as DataOptions
    from grpo_practice.reports.config_report import ConfigReport
    from grpo_practice.reports.saved_report import SavedReport
    from grpo_practice.reports.scored_answer import ScoredAnswer
    from grpo_practice.reports.trace_report import TraceReport
    from grpo_practice.reports.trust_report import TrustReport
    from grpo_practice.run.datasets import Datasets
    from grpo_practice.run.doctor.diagnosis import Diagnosis as Diagnosis
    from grpo_practice.run.forecast.estimate import Forecast as Forecast
    from grpo_practice.run.forecast.estimate import Line as Line
    from grpo_practice.run.forecast.range import Range as Range
    from grpo_practice.serve.serving import Served as Served
    from grpo_practice.store.queries.spending import Piloted as Piloted
    from grpo_practice.viewer.server import Viewed as Viewed
    from grpo_practice.viewer.story import Story

PORT = 8400
"""Default port of `serve`."""
VIEW_PORT = 8390
"""Default port of `view`."""
ReportFormat = Literal["html", "md"]


def environment(
    trust: "Sequence[str | Path]" = (), trust_hosts: Sequence[str] = ()
) -> "Environment":
    """Return the variables of this process and of `.env`, for the argument `env` of a method.

    Args:
        trust: Files by other people that you have read and trust: agent files, or the database.
        trust_hosts: Hosts that may receive the keys that the configuration would send them.

    Raises:
        ConfigError: The `.env` file cannot be read.
    """
    from grpo_practice.config.input import known

    return known(None, [Path(file) for file in trust], trust_hosts)


class Workspace(StoredRuns, Libraries, PlayedRuns):
    """A database and all operations on it; also a context manager, sync or async.

    Each call opens the file and closes it again, so a workspace can be kept indefinitely and shared
    by threads, event loops and processes.

    Args:
        path: SQLite file; created by the first call that writes.
        command: Command to record for runs; None records the method that was called.
        signals: Whether a blocking call handles SIGINT, SIGTERM and SIGHUP by stopping in an
            orderly way and raising StoppedError. Works only in the main thread of a program;
            without it, Ctrl-C raises KeyboardInterrupt.
    """

    @property
    def datasets(self) -> "Datasets":
        """The datasets of this database."""
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

        The check sends two tiny requests to each endpoint, and one tiny comparison to the teacher.

        Args:
            config: As for `evaluate`; None selects the latest run's configuration.
            sets: Overrides, `KEY=VALUE`.
            agent: Agent file to be evaluated with this configuration.
            run: Whether to also try the programs that the configuration names.
            env: Variables that the configuration may name; None uses the process's and `.env`.
            on_event: Receives notices about the requests that are sent.
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
        )
        emit = tee(on_event or silent)
        return await diagnose(request, lambda text: emit(Notice(text)))

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
        """Score a single response; see `app.score_answer`. Nothing is stored."""
        from grpo_practice.core.events import silent
        from grpo_practice.run.score_answer import score_answer
        from grpo_practice.run.waiting import run_blocking

        emit = on_event or silent
        return run_blocking(
            score_answer(function, sample, response, params, env=env, on_event=emit)
        )

    def serve(
        self,
        agent: "str | Path | Mapping[str, Any]",
        *,
        port: int = PORT,
        record: str | None = None,
        env: "Mapping[str, str] | None" = None,
        on_ready: "Callable[[Served], None]" = lambda _: None,
        on_event: "Emit | None" = None,
    ) -> None:
        """Serve an agent as `serve_async` does, until Ctrl-C."""
        import asyncio

        work = self.serve_async(
            agent, port=port, record=record, env=env, on_ready=on_ready, on_event=on_event
        )
        with suppress(KeyboardInterrupt):
            asyncio.run(work)

    async def serve_async(
        self,
        agent: "str | Path | Mapping[str, Any]",
        *,
        port: int = PORT,
        record: str | None = None,
        env: "Mapping[str, str] | None" = None,
        on_ready: "Callable[[Served], None]" = lambda _: None,
        on_event: "Emit | None" = None,
    ) -> None:
        """Serve an agent file as an OpenAI-compatible endpoint, until the task is cancelled.

        Args:
            agent: File written by `export`, or a mapping with the contents of such a file.
            port: Port to listen on; 0 picks a free one.
            record: Run in which to store all requests and responses; None stores nothing.
            env: Variables that the agent may name; None uses the process's and `.env`.
            on_ready: Called once the server accepts requests.
            on_event: Receives notices for the user.

        Raises:
            ConfigError: The agent, the port, or the name of the run cannot be used.
        """
        from grpo_practice.config.input import known
        from grpo_practice.core.events import silent, tee
        from grpo_practice.serve.serving import serve_agent

        file = Path(agent) if isinstance(agent, str) else agent
        shown = repr(str(file)) if isinstance(file, Path) else "agent"
        command = self._command or f"{self!r}.serve({shown})"
        with ExitStack() as stack:
            # Without recording, no database is needed, and none is created.
            store = stack.enter_context(self._store(create=True)) if record is not None else None
            to = None if store is None or record is None else (store, record, command)
            emit = tee(on_event or silent)
            await serve_agent(file, port, to, known(env), on_ready=on_ready, emit=emit)

    def report(
        self,
        *runs: str,
        format: ReportFormat | None = None,
        output: str | Path | None = None,
        force: bool = False,
    ) -> "SavedReport":
        """Return a one-page report of runs: whether they improved, and why.

        Args:
            runs: Runs of practice, training and evaluation; without any, the latest run of the
                first of these kinds that has one.
            format: `html` is one file that loads and runs nothing, `md` is for a pull request; None
                chooses by the name of the file.
            output: File to write.
            force: Whether to replace an existing file.

        Raises:
            ConfigError: A run does not exist or has not begun, or the file cannot be written.
        """
        from grpo_practice.core.errors import ConfigError
        from grpo_practice.core.files import check_free, write_file
        from grpo_practice.reports.saved_report import SavedReport
        from grpo_practice.store.db import now
        from grpo_practice.store.queries.runs import get
        from grpo_practice.viewer.markdown import markdown
        from grpo_practice.viewer.pages import when
        from grpo_practice.viewer.report import Part, html
        from grpo_practice.viewer.shown_rollouts import choose
        from grpo_practice.viewer.story import latest_run, story_of

        path = None if output is None else Path(output)
        if format is None:
            format = "md" if path is not None and path.suffix.lower() == ".md" else "html"
        if format not in ("html", "md"):
            raise ConfigError(f"there is no report format {format!r}", hint="choose html or md")
        with self._store() as store:
            names = [*dict.fromkeys(runs)] or [latest_run(store)]
            for name in names:  # first, so that an existing file does not hide a misspelt run
                store.read(get, name)
            if path is not None and not force:
                check_free(path)  # before the slow part, making the report
            stories = [story_of(store, name) for name in names]
            parts = [
                Part(n, story, choose(store, story, f"x{n}")) for n, story in enumerate(stories)
            ]
        made = now()
        text = markdown(parts, when(made)) if format == "md" else html(parts, self.path.name, made)
        if path is not None:
            write_file(path, text, force=force)
        answers = [part.answer for part in parts]
        return SavedReport(names, format, text, path, answers, _next(stories[0]))

    def view(
        self,
        *,
        port: int = VIEW_PORT,
        open_browser: bool = False,
        on_ready: "Callable[[Viewed], None]" = lambda _: None,
        on_event: "Emit | None" = None,
    ) -> None:
        """Show the runs in a browser as `view_async` does, until Ctrl-C."""
        import asyncio

        work = self.view_async(
            port=port, open_browser=open_browser, on_ready=on_ready, on_event=on_event
        )
        with suppress(KeyboardInterrupt):
            asyncio.run(work)

    async def view_async(
        self,
        *,
        port: int = VIEW_PORT,
        open_browser: bool = False,
        on_ready: "Callable[[Viewed], None]" = lambda _: None,
        on_event: "Emit | None" = None,
    ) -> None:
        """Show the runs as web pages on this machine, until the task is cancelled.

        The viewer writes nothing to the database, and runs may continue while it is open.

        Args:
            port: Port to listen on; 0 picks a free one.
            open_browser: Whether to open the address in the system's browser.
            on_ready: Called once pages are available; the address passed to it is a secret.
            on_event: Receives notices for the user.

        Raises:
            ConfigError: The database does not exist, or the port cannot be used.
            StoreError: The database cannot be read, or has another schema.
        """
        from grpo_practice.core.events import Notice, silent, tee
        from grpo_practice.viewer.server import serve_pages

        self._check_usable(made=True)
        emit = tee(on_event or silent)
        await serve_pages(
            self.path,
            port,
            on_ready=on_ready,
            open_browser=open_browser,
            notice=lambda text: emit(Notice(text)),
        )

    def trace(self, run: str, *, content: bool = True, sample: float = 1.0) -> "TraceReport":
        """Send the traces of a stored run to the collector named by the environment.

        Sending a run twice is harmless, because its traces are the same each time.

        Args:
            run: Name of the run.
            content: Whether traces include questions, prompts, answers and errors.
            sample: Share of the groups to send, above 0 and up to 1; the same groups each time.

        Raises:
            ConfigError: The run does not exist, or the environment names no collector.
            EndpointError: The collector does not accept the traces.
        """
        from grpo_practice.run.requests.base import check_share
        from grpo_practice.tracing.stored import send_stored
        from grpo_practice.tracing.tracer import Tracing

        # Opening the store reports a missing or newer database; `send_stored` opens it itself.
        with self._store():
            check_share(sample)
            return send_stored(self.path, run, Tracing(content, sample))


def _next(story: "Story") -> str:
    """Return the command to suggest after the report of a run."""
    run = story.report.run
    if run.kind == "practice" and story.measure is None and story.library:
        return f"grpo-practice export-agent --run {quote(run.name)}"
    if run.kind == "eval" and run.steps_closed == run.steps:
        return f"grpo-practice rollouts list {quote(run.name)}"
    if run.kind == "train":  # the weights must exist before they can be measured
        return story.report.next_command
    return story.measure or story.report.next_command
