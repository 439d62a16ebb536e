"""Clients for student, teacher and judge, opened once per endpoint and closed together."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from grpo_practice.config.schema.provider import DEFAULT_TIMEOUT_S, ModelConfig
from grpo_practice.config.schema.runs import ModelPrice
from grpo_practice.core.batch_log import BatchLog
from grpo_practice.core.calls import Ledger, Scope
from grpo_practice.core.events import Emit, Notice
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.concurrency import FIRST, LATER, STUDENT, Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.ledgered import AgentChat, Model, ledgered
from grpo_practice.llm.params import canonical_params
from grpo_practice.llm.prices import Prices
from grpo_practice.llm.size_limit import MEBIBYTE

if TYPE_CHECKING:
    from grpo_practice.llm.batch import Batches
    from grpo_practice.llm.client import Client

SIM_URL = "http://simulated/v1"
"""URL of the simulated endpoint, which answers in this process; the name is never resolved."""

LISTED = Prices({})
"""Listed prices, without prices from a configuration."""

Caller = Literal["student", "teacher", "judge"]


class Connections(AsyncExitStack[None]):
    """The clients of all runs of a command, one per endpoint; an async context that owns them.

    Student and teacher share one limit per endpoint, with priority for the teacher. The judge has a
    separate limit.

    Args:
        emit: Receives notices for the user.
        concurrency: Maximum calls in flight: of student and teacher together, and of the judge.
        admission: Gate that every try of a request has to pass.
    """

    def __init__(self, emit: Emit, *, concurrency: tuple[int, int], admission: Admission) -> None:
        super().__init__()
        self._emit, self._admission = emit, admission
        # Set here, because the gate is created before the run's sink.
        admission.emit = emit
        self._most = dict(zip(("play", "judge"), concurrency, strict=True))
        self._limits = dict[tuple[str, str], Limit]()
        self._clients = dict[str, "Client"]()
        self._batches = dict[tuple[int, str], "Batches"]()

    @property
    def at_once(self) -> int:
        """Maximum number of rollouts in play."""
        return self._most["play"]

    async def client(self, endpoint: Endpoint, config: ModelConfig, caller: Caller) -> "Client":
        """Return the client of an endpoint, opened once for all callers with the same settings."""
        pool = "judge" if caller == "judge" else "play"
        key = pool + _settings(endpoint)
        if key not in self._clients:
            await asyncio.to_thread(load_client)
            from grpo_practice.llm.client import Client

            transport = None
            if config.model_provider.simulated:
                from grpo_practice.llm.sim import SimTransport

                transport = SimTransport()
            # One limit per address, because clients with different keys share the server.
            limit = self._limits.setdefault((pool, endpoint.base_url), Limit(self._most[pool]))
            client = Client(
                endpoint,
                limit,
                notice=lambda text: self._emit(Notice(text)),
                admission=self._admission,
                transport=transport,
            )
            self._clients[key] = await self.enter_async_context(client)
        return self._clients[key]

    async def batches(self, endpoint: Endpoint, log: BatchLog, *, enabled: bool) -> "Batches":
        """Return the batches of a run at an endpoint, opened once for all callers."""
        key = id(log), f"{enabled}{_settings(endpoint)}"
        if key not in self._batches:
            from grpo_practice.llm.batch import Batches

            opened = Batches(endpoint, log, self._admission, enabled=enabled)
            self._batches[key] = await self.enter_async_context(opened)
        return self._batches[key]


def _settings(endpoint: Endpoint) -> str:
    """Return all settings, or else one role would use the settings of another.

    repr(endpoint) would not suffice, because it omits secrets.
    """
    return repr([getattr(endpoint, f.name) for f in fields(endpoint) if f.compare])


@dataclass(frozen=True, slots=True)
class Models:
    """The chats for a run's three roles."""

    connections: Connections
    ledger: Ledger
    """Ledger in which every call is looked up and stored."""
    emit: Emit
    """Event sink for calls."""
    prices: Mapping[str, ModelPrice]
    """Prices of models from the configuration."""
    log: BatchLog | None = None
    """Record of the run's batches; None sends every request at once."""

    async def chats(
        self, config: ModelConfig, caller: Caller, *, later: bool = False
    ) -> Callable[[Scope], AgentChat]:
        """Return a function that opens a conversation with this model in a scope, using the ledger.

        With `later`, the model's requests wait for all other requests.

        Raises:
            ConfigError: A setting or the endpoint cannot be used.
        """
        prices, enabled = Prices(self.prices), config.model_provider.batch
        params, endpoint = endpoint_of(config, prices)
        client = await self.connections.client(endpoint, config, caller)
        send = client.sender(LATER if later else STUDENT if caller == "student" else FIRST)
        model = Model(config.model_provider.model, params, send)
        # Batches of an earlier command are read even if this one sends none.
        if self.log is not None and (enabled or self.log.unread()):
            at_batch_price = replace(endpoint, price=partial(prices.find, batch=True))
            batches = await self.connections.batches(at_batch_price, self.log, enabled=enabled)
            model = replace(model, batches=batches)
        return ledgered(model, self.ledger, self.emit)


def load_client() -> None:
    """Import the HTTP client early, because this takes half a second and blocks the event loop."""
    from grpo_practice.llm.http import certificates

    import_module("grpo_practice.llm.client")
    with suppress(OSError, ValueError):  # reported when a connection is opened
        certificates()


def endpoint_of(config: ModelConfig, prices: Prices = LISTED) -> tuple[dict[str, Any], Endpoint]:
    """Return the parameters for every request to a model, and the endpoint for these requests.

    Raises:
        ConfigError: A setting is invalid.
    """
    params, wire = canonical_params(config.model_settings.given())
    provider = config.model_provider
    endpoint = Endpoint(
        base_url=SIM_URL if provider.simulated else provider.base_url,
        api_key=provider.key,
        headers=wire.headers,
        query=wire.query,
        unhashed=wire.unhashed,
        timeout_s=wire.timeout_s or DEFAULT_TIMEOUT_S,
        limit_name=wire.limit_name,
        send_seed=provider.send_seed,
        stream=provider.stream,
        # Token counts are requested unless this is switched off, because costs are computed from
        # them.
        stream_usage=config.model_settings.include_usage is not False,
        max_reply_bytes=provider.max_reply_mib * MEBIBYTE,
        requests_per_minute=provider.requests_per_minute,
        tokens_per_minute=provider.tokens_per_minute,
        api=provider.type,
        section=provider.section or "agent.model.model_provider",
        key_name=provider.key_origin or "agent.model.model_provider.api_key",
        price=partial(prices.find, simulated=provider.simulated),
    )
    return params, endpoint
