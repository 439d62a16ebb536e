"""`serve`: turns an agent file into an endpoint, and its traffic into a recorded run."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import override

from grpo_practice.config import Environment, load_eval
from grpo_practice.config.identity import identity_of
from grpo_practice.config.reading.yaml_reader import Tree
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.base import check_name
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.events import Emit, Notice
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.core.text import LOOPBACK, is_loopback
from grpo_practice.core.types import Library
from grpo_practice.llm.endpoint import Endpoint, host, shown_url
from grpo_practice.llm.http import Http
from grpo_practice.llm.open_files import fewer_notice
from grpo_practice.llm.prices import Prices
from grpo_practice.llm.sim import SimTransport
from grpo_practice.reports.base import Report
from grpo_practice.rollout.chat_server.server import listening
from grpo_practice.run.batched_runs import no_batches
from grpo_practice.run.clients import SIM_URL, endpoint_of
from grpo_practice.run.served_agent import ServedAgent
from grpo_practice.run.specs import simulated
from grpo_practice.run.waiting import rare_collections
from grpo_practice.serve.conversations import MOST, Conversations, RecordedCall
from grpo_practice.serve.recorder import Recorder
from grpo_practice.serve.service import Counts, Service
from grpo_practice.serve.upstream import Upstream
from grpo_practice.store import Store, recorded_runs
from grpo_practice.store.identity import agent_of
from grpo_practice.store.recorded_runs import RecordedSpec

CONNECTIONS = 512
"""Maximum number of requests in flight to the model; further requests wait."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An agent that is ready to be served."""

    agent: ServedAgent
    config: AgentConfig
    endpoint: Endpoint
    settings: Mapping[str, Any]
    identity: Mapping[str, Any]
    config_text: str
    simulated: bool
    notices: list[str]
    """Notices for the user."""

    @property
    def passing_on_to(self) -> str:
        """Address of the model, for display."""
        url = self.endpoint.base_url
        return "the simulated endpoint in this program" if url == SIM_URL else shown_url(url)


@dataclass(frozen=True, slots=True, repr=False)
class Served(Report):
    """An agent that is being served."""

    schema: ClassVar = "grpo-practice.serve/1"
    in_document: ClassVar = (
        *("url", "prepared.agent.name", "prepared.agent.experiences", "prepared.agent.model"),
        *("prepared.passing_on_to", "prepared.simulated", "run"),
    )

    url: str
    prepared: Prepared
    counts: Counts
    """Totals of the requests so far."""
    recorder: Recorder | None
    """Recorder of requests and replies; None without recording."""
    run: str | None
    """Name of the recorded run."""

    @property
    @override
    def exit_code(self) -> None:
        """None, because the document is printed before the command ends."""


async def serve_agent(
    agent: Path | Mapping[str, Any],
    port: int,
    record: tuple[Store, str, str] | None,
    env: Environment,
    *,
    on_ready: Callable[[Served], None],
    emit: Emit,
) -> None:
    """Serve the agent in a file until this call is cancelled; see `Workspace.serve_async`.

    `record` contains the database, run and command under which to store all traffic.

    Raises:
        ConfigError: See `prepare`, `recording` and `serve`.
    """

    def notice(text: str) -> None:
        emit(Notice(text))

    prepared = prepare(agent, env)
    for text in prepared.notices:
        notice(text)
    with ExitStack() as stack:
        recorder = None
        if record is not None:
            store, run, command = record
            recorder = stack.enter_context(recording(store, run, prepared, command, notice))

        def ready(bound: int, counts: Counts) -> None:
            url, run = f"http://{LOOPBACK}:{bound}/v1", record[1] if record else None
            on_ready(Served(url, prepared, counts, recorder, run))

        await serve(prepared, port, recorder=recorder, on_ready=ready, notice=notice)


def prepare(agent: Path | Mapping[str, Any], env: Environment) -> Prepared:
    """Return the agent in a file, parsed as for `eval --agent`, or in a mapping.

    Raises:
        ConfigError: The agent cannot be used; the message names each wrong key with file and line.
    """
    no_data = ["data.dataset=none", "verify=exact"]  # required by the loader, not used
    if isinstance(agent, Path):
        loaded = load_eval(None, no_data, env, agent=agent)
    else:
        loaded = load_eval(Tree({"agent": dict(agent)}), no_data, env)
    config, prices = loaded.config.agent, Prices(loaded.config.prices)
    if config.model.model_provider.batch:
        raise no_batches(config.model, "the clients of a served agent wait for its replies")
    settings, endpoint = endpoint_of(config.model, prices)
    served = ServedAgent(
        config.agent.name,
        config.model.model_provider.model,
        system_prompt(config.agent.instructions, Library()),
    )
    identity = agent_of(identity_of(loaded.config))
    return Prepared(
        served,
        config,
        endpoint,
        settings,
        identity,
        loaded.text,
        simulated(config.model),
        [*loaded.announcements, *loaded.notices, *_what_is_not_served(config, served)],
    )


def _what_is_not_served(config: AgentConfig, agent: ServedAgent) -> Iterator[str]:
    if not agent.prompt:
        yield "this agent has no instructions, so requests are forwarded unchanged"
    if config.toolkits:
        names = ", ".join(config.toolkits)
        yield (
            f"its toolkits ({names}) are not served: clients send the schemas of their own tools"
            " and call them"
        )
    if config.type != "simple":
        what = config.function or " ".join(config.command or ())
        yield f"its program ({what}) is not served; only its instructions and its model are"


async def serve(
    prepared: Prepared,
    port: int,
    *,
    recorder: Recorder | None,
    on_ready: Callable[[int, Counts], None],
    notice: Callable[[str], None],
) -> None:
    """Serve requests at `http://127.0.0.1:port/v1` until this call is cancelled.

    Port 0 picks a free port. Cancelling aborts requests in flight; all traffic so far is recorded.
    `on_ready` is called with the port and the counters as soon as requests are answered.

    Raises:
        ConfigError: The port or the network settings cannot be used, or the model's address is the
            served address itself.
    """
    async with _service(prepared, recorder, notice) as service:
        app = service.application(
            lambda e: notice(f"a request was not answered: {type(e).__name__}: {e}")
        )
        try:
            async with listening(app, port) as bound:
                # Check this only now, because port 0 gets its number when it is bound.
                _not_itself(prepared.endpoint, bound)
                on_ready(bound, service.counts)
                try:
                    with rare_collections():
                        await asyncio.Event().wait()
                finally:
                    service.stop()
        except OSError as e:
            raise ConfigError(
                f"cannot listen on port {port}: {os.strerror(e.errno or 0)}",
                hint="--port 0 picks a free port",
            ) from e


def _not_itself(endpoint: Endpoint, port: int) -> None:
    parts = urlsplit(endpoint.base_url)
    if is_loopback(parts.hostname or "") and parts.port == port:
        raise ConfigError(
            f"the agent's model is at {parts.scheme}://{parts.hostname}:{port}, where the agent"
            " itself would be served, so requests would loop forever",
            hint="OPENAI_BASE_URL is for programs that use the agent; unset it here, or name the"
            " model's own URL in UTU_LLM_BASE_URL",
        )


@asynccontextmanager
async def _service(
    prepared: Prepared, recorder: Recorder | None, notice: Callable[[str], None]
) -> AsyncIterator[Service]:
    endpoint = prepared.endpoint
    sim = SimTransport() if prepared.config.model.model_provider.simulated else None
    http = Http(endpoint, CONNECTIONS, sim)
    if http.at_once < CONNECTIONS:
        notice(fewer_notice(host(endpoint.base_url), http.at_once, CONNECTIONS))
    try:
        upstream = Upstream(endpoint, prepared.agent.model, prepared.settings, http)
        yield Service(prepared.agent, endpoint, upstream, recorder.take if recorder else None)
    finally:
        if recorder is not None:
            await recorder.drain()
        await http.aclose()


@contextmanager
def recording(
    store: Store, run: str, prepared: Prepared, command: str, notice: Callable[[str], None]
) -> Iterator[Recorder]:
    """Open a recorder that stores traffic as this run, locked for the duration of the block.

    Raises:
        ConfigError: The name cannot be used, or belongs to a run of another kind or agent.
        LockedError: Another process is recording into the run.
    """
    check_name(run, "a run")
    spec = RecordedSpec(
        run,
        prepared.identity,
        prepared.agent.prompt,
        prepared.config_text,
        Path.cwd(),
        prepared.simulated,
    )
    # Locked while it records, because two recorders would give the same numbers to different
    # conversations.
    with store.lock(run):
        store.close_dead(run)
        branch = store.record(spec)
        with store.invocation(branch, command) as invocation_id:
            known = [
                (a.request_hash, RecordedCall(a.slot, a.turn, a.nth, a.call_id))
                for a in store.read(recorded_runs.recent_requests, branch.id, MOST)
            ]
            yield Recorder(
                store.ledger(branch, invocation_id),
                branch.id,
                Conversations(known, lambda call_id: store.read(recorded_runs.reply_of, call_id)),
                prepared.endpoint,
                notice,
            )
