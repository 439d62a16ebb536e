"""Batches: nothing is paid twice, whatever the endpoint does and whenever the command dies."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from grpo_practice.core.batch_log import CallKey, StoredBatch
from grpo_practice.core.calls import Address, Reply, Request
from grpo_practice.core.errors import ContextOverflowError, EndpointRefusedError, PausedError
from grpo_practice.core.events import Notice
from grpo_practice.core.stages import Stage
from grpo_practice.llm import batch
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.batch import Batches
from grpo_practice.llm.budget import Account, Caps
from grpo_practice.llm.endpoint import Endpoint
from tests.contract.endpoint.batches import BatchServer, batching

ANSWERED = "2026-01-01T00:00:00.000+00:00"


class KilledError(Exception):
    """Stands for the death of the process."""


@dataclass
class MemoryLog:
    """A record of batches that outlives a command; dies before or after the change named so."""

    rows: dict[int, StoredBatch] = field(default_factory=dict)
    status: dict[int, str] = field(default_factory=dict)
    answered: set[CallKey] = field(default_factory=set)
    """Keys that the ledger has answers to."""
    dies: str = ""

    def unread(self) -> Sequence[StoredBatch]:
        left = (
            replace(row, calls=[call for call in row.calls if call not in self.answered])
            for i, row in self.rows.items()
            if self.status.get(i) != "failed"
        )
        return [row for row in left if row.calls]

    async def flushed(self) -> None:
        pass

    def begin(self, model: str, url: str, calls: Collection[CallKey]) -> StoredBatch:
        row = StoredBatch(len(self.rows) + 1, url, list(calls), ANSWERED)
        self._change("begin", lambda: self.rows.update({row.id: row}))
        return row

    def update(self, batch_id: int, *, status: str | None = None, **names: Any) -> None:
        if status is not None:
            ended = status
            self._change("ended", lambda: self.status.update({batch_id: ended}))
        for name, value in names.items():
            row = replace(self.rows[batch_id], **{name: value})
            self._change(name, partial(self.rows.__setitem__, batch_id, row))

    def _change(self, name: str, change: Callable[[], None]) -> None:
        if self.dies == f"before {name}":
            raise KilledError
        change()
        if self.dies == f"after {name}":
            raise KilledError


@dataclass
class Asked:
    """A command with requests to make."""

    server: BatchServer
    log: MemoryLog = field(default_factory=MemoryLog)
    caps: Caps = field(default_factory=Caps)
    live: list[Request] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True
    account: Account = field(default_factory=Account)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Batches]:
        self.account.caps = self.caps
        admission = Admission(self.account)
        admission.emit = lambda event: (
            self.notices.append(event.text) if isinstance(event, Notice) else None
        )
        endpoint = Endpoint(self.server.url, **{"api_key": "k", "max_tries": 3, **self.endpoint})
        opened = Batches(endpoint, self.log, admission, enabled=self.enabled, sleep=_brief)
        async with opened as batches:
            yield batches

    async def make(self, n: int, first: int = 0) -> list[Any]:
        """Make these requests at one time; return each reply's text, or the error."""

        async def one(batches: Batches, i: int) -> Any:
            reply = await batches.send(key(i), self._live, request(i))
            self.log.answered.add(key(i))
            return reply.content

        async with self.opened() as batches:
            ours = [one(batches, i) for i in range(first, first + n)]
            return await asyncio.gather(*ours, return_exceptions=True)

    async def _live(self, request: Request, *, limit_s: float | None = None) -> Reply:
        self.live.append(request)
        return Reply({"role": "assistant", "content": "live"})

    @property
    def kinds(self) -> list[int]:
        """Number of requests of each batch that the endpoint was given."""
        return [b.told["request_counts"]["total"] for b in self.server.batches.values()]


async def _brief(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.01))


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0.01)


def key(i: int, stage: Stage = "play") -> CallKey:
    return Address(1, 0, i, 0, stage), i.to_bytes(16), 0


def request(i: int, model: str = "sim") -> Request:
    return Request(model, {"seed": i}, [{"role": "user", "content": f"What is {i} + 1?"}])


async def expected(n: int) -> list[str]:
    async with batching() as server:
        return await Asked(server).make(n)


async def test_a_stage_is_one_batch_and_each_request_gets_its_own_reply() -> None:
    async with batching(shuffle=3, twice=True, unknown=True) as server:
        asked = Asked(server)
        assert await asked.make(5) == await expected(5)
        assert asked.kinds == [5]
        assert not server.paid_twice()
        assert (asked.log.status, len(asked.notices)) == ({1: "completed"}, 1)


async def test_stages_and_models_have_batches_of_their_own() -> None:
    async with batching() as server:
        asked = Asked(server)
        async with asked.opened() as batches:
            await asyncio.gather(
                *(batches.send(key(i, "play"), asked._live, request(i)) for i in range(3)),
                *(batches.send(key(i, "judge"), asked._live, request(i)) for i in range(2)),
                batches.send(key(9, "judge"), asked._live, request(9, "sim:other")),
            )
        assert sorted(asked.kinds) == [1, 2, 3]
        stages = [next(iter(row.calls))[0].stage for row in asked.log.rows.values()]
        assert sorted(stages) == ["judge", "judge", "play"]


async def test_a_merge_is_sent_at_once() -> None:
    async with batching() as server:
        asked = Asked(server)
        async with asked.opened() as batches:
            await batches.send(key(0, "merge"), asked._live, request(0))
        assert (len(asked.live), asked.kinds) == (1, [])


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"expire_after": 2}, [5, 3]),
        ({"script": lambda n, _, body: (500, {"error": {}}) if n in (2, 4) else None}, [5, 2]),
        ({"script": lambda n, _, body: (429, {"error": {}}) if n == 1 else None}, [5, 1]),
        ({"fail_first": {"code": "token_limit_exceeded", "message": "x"}}, [0, 2, 3]),
        ({"fail_first": {"code": "token_limit_exceeded"}, "fail_over": 2}, [0, 2, 0, 1, 2]),
        ({"truncate": 1}, [5]),
        ({"short_download": 2}, [5]),
        ({"reject": lambda m, path, n: _rejected(m, path, n)}, [5]),
    ],
)
async def test_faults_cost_another_batch_at_most(options: dict[str, Any], kinds: list[int]) -> None:
    async with batching(**options) as server:
        asked = Asked(server)
        assert await asked.make(5) == await expected(5)
        assert asked.kinds == kinds
        assert not server.paid_twice()


def _rejected(method: str, path: str, n: int) -> tuple[int, dict[str, str], Any] | None:
    """Refuse the first two uploads, creations, looks and downloads."""
    if n > 2:
        return None
    return (429, {"Retry-After": "1"}, {}) if path.endswith("files") else (503, {}, {})


async def test_a_file_that_stays_cut_off_loses_only_its_last_reply() -> None:
    def script(n: int, _: str, body: Any) -> None:
        if n == 4:
            server.set(truncate=0)

    async with batching(truncate=99, script=script) as server:
        asked = Asked(server)
        assert await asked.make(3) == await expected(3)
        assert asked.kinds == [3, 1]


async def test_a_request_that_is_too_long_fails_alone() -> None:
    def script(n: int, _: str, body: Any) -> tuple[int, Any] | None:
        error = {"code": "context_length_exceeded", "message": "maximum context length is 10"}
        return (400, {"error": error}) if n == 2 else None

    async with batching(script=script) as server:
        came = await Asked(server).make(3)
        assert [type(x) for x in came] == [str, ContextOverflowError, str]


async def test_a_setting_that_is_refused_is_omitted_in_the_next_batch() -> None:
    def script(n: int, _: str, body: Any) -> tuple[int, Any] | None:
        error = {"code": "unsupported_parameter", "param": "seed", "message": "no seed"}
        return (400, {"error": error}) if "seed" in body else None

    async with batching(script=script) as server:
        asked = Asked(server)
        async with asked.opened() as batches:
            sent = (batches.send(key(i), asked._live, request(i)) for i in range(3))
            replies = await asyncio.gather(*sent)
        assert asked.kinds == [3, 3]
        assert not any(reply.seeded for reply in replies)
        assert "does not accept `seed`" in asked.notices[1]


async def test_an_endpoint_without_batches_is_refused_with_the_way_out() -> None:
    async with batching(reject=lambda *_: (404, {}, {})) as server:
        (error,) = await Asked(server).make(1)
        assert isinstance(error, EndpointRefusedError)
        assert "does not offer batches" in str(error)
        assert error.hint == "--set agent.model.model_provider.batch=false"


async def test_a_batch_is_split_at_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_REQUESTS", 2)
    async with batching(max_requests=2) as server:
        asked = Asked(server)
        assert await asked.make(5) == await expected(5)
        assert sorted(asked.kinds) == [1, 2, 2]
    monkeypatch.setattr(batch, "MOST_BYTES", 500)
    async with batching(max_bytes=500) as server:
        asked = Asked(server)
        assert await asked.make(5) == await expected(5)
        assert sum(asked.kinds) == 5


MOMENTS = [
    f"{when} {what}"
    for what in ("begin", "file_id", "remote_id", "ended")
    for when in ("before", "after")
]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_command_that_dies_finds_its_batch_again(moment: str) -> None:
    async with batching() as server:
        dead = Asked(server, MemoryLog(dies=moment))
        assert {type(x) for x in await dead.make(4)} == {KilledError}
        asked = Asked(server, replace(dead.log, dies=""))
        assert await asked.make(4) == await expected(4)
        assert not server.paid_twice()
        assert len(server.paid) == 4


async def test_a_command_that_dies_while_its_batch_is_created_finds_it() -> None:
    async with batching(create_delay_s=60) as server:
        asked = Asked(server)
        dying = asyncio.create_task(asked.make(4))
        await until(lambda: server.batches)
        dying.cancel()
        await asyncio.wait([dying])
        assert [row.remote_id for row in asked.log.rows.values()] == [None]
        server.set(create_delay_s=0)
        assert await asked.make(4) == await expected(4)
        assert (asked.kinds, len(server.paid)) == ([4], 4)


async def test_a_lost_response_does_not_make_a_second_batch() -> None:
    made = list[str]()

    def reject(method: str, path: str, n: int) -> tuple[int, dict[str, str], Any] | None:
        # The batch was made, and the response is lost on the way.
        if (method, path) == ("POST", "/v1/batches") and n == 1:
            made.append(path)
        return None

    async with batching(reject=reject, create_delay_s=60) as server:
        asked = Asked(server, endpoint={"timeout_s": 2})
        answers = asyncio.create_task(asked.make(2))
        await until(lambda: server.batches)
        server.set(create_delay_s=0)
        assert await answers == await expected(2)
        assert (asked.kinds, len(made)) == ([2], 1)


async def test_a_batch_is_read_even_when_requests_are_no_longer_batched() -> None:
    async with batching() as server:
        dead = Asked(server, MemoryLog(dies="after remote_id"))
        assert {type(x) for x in await dead.make(3)} == {KilledError}
        asked = Asked(server, replace(dead.log, dies=""), enabled=False)
        assert await asked.make(4) == [*(await expected(3)), "live"]
        assert len(server.paid) == 3


async def test_a_cancelled_batch_stops_the_command_and_its_answers_are_used_later() -> None:
    async with batching(hold=True, held_after=2) as server:
        asked = Asked(server)
        waiting = asyncio.create_task(asked.make(4))
        await until(lambda: server.batches and len(server.paid) == 2)
        (name,) = server.batches
        async with asked.opened() as batches:
            await batches._api.cancel(name)
        came = await waiting
        assert {type(x) for x in came} == {EndpointRefusedError}
        server.set(hold=False)
        assert await asked.make(4) == await expected(4)
        assert (asked.kinds, len(server.paid)) == ([4, 2], 4)


async def test_answers_that_a_cancelled_batch_had_are_read_by_the_next_command() -> None:
    async with batching(hold=True, held_after=2) as server:
        asked = Asked(server)
        waiting = asyncio.create_task(asked.make(4))
        await until(lambda: server.batches and len(server.paid) == 2)
        waiting.cancel()
        await asyncio.wait([waiting])
        async with asked.opened() as batches:
            await batches._cancel(*server.batches)
        server.set(hold=False)
        assert await asked.make(4) == await expected(4)
        assert (asked.kinds, len(server.paid)) == ([4, 2], 4)


async def test_a_batch_at_another_address_is_not_paid_again() -> None:
    async with batching() as first, batching() as second:
        dead = Asked(first, MemoryLog(dies="after remote_id"))
        assert {type(x) for x in await dead.make(2)} == {KilledError}
        came = await Asked(second, replace(dead.log, dies="")).make(2)
        assert {type(x) for x in came} == {EndpointRefusedError}
        assert first.url in str(came[0].hint)
        assert not second.paid


async def test_a_cap_counts_the_requests_under_way() -> None:
    async with batching() as server:
        asked = Asked(server, caps=Caps(requests=3))
        came = await asked.make(5)
        assert Counter(type(x) for x in came) == {str: 3, PausedError: 2}
        assert asked.kinds == [3]


async def test_no_cap_holds_back_the_replies_of_an_earlier_batch() -> None:
    async with batching() as server:
        dead = Asked(server, MemoryLog(dies="after remote_id"))
        await dead.make(3)
        asked = Asked(server, replace(dead.log, dies=""), caps=Caps(requests=2))
        came = await asked.make(4)
        assert came[:3] == await expected(3)
        assert isinstance(came[3], PausedError)


async def test_the_responses_api_has_batches_too() -> None:
    async with batching() as server:
        asked = Asked(server, endpoint={"api": "responses"})
        assert all(isinstance(text, str) and text for text in await asked.make(2))
        assert {row["path"] for row in server.paid} == {"/v1/responses"}
        charged = sum(row["tokens_in"] + row["tokens_out"] for row in server.paid)
        assert asked.account.spent.tokens == charged
