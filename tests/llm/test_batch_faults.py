"""Batches at an endpoint that breaks its own rules, loses results or answers late."""

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm import batch_api
from grpo_practice.llm.batch_api import ENDED, BatchApi, RemoteBatch
from tests.contract.endpoint.batches import BatchServer, Kept, batching
from tests.llm.test_batch import Asked, KilledError, MemoryLog, expected, key, request, until

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.llm.test_batch.ANSWERED", "2999-01-01T00:00:00.000+00:00")


def alter(server: BatchServer, change: Callable[[Json], Json]) -> None:
    """Change what the server tells of a batch that has ended."""
    own = server._own

    def altered(owner: str, kind: str, name: str) -> Kept:
        kept = own(owner, kind, name)
        if kind == "batches" and kept.told["status"] in ENDED:
            return Kept(kept.owner, change(kept.told), kept.content)
        return kept

    server._own = altered  # type: ignore[method-assign]


async def refused(asked: Asked, n: int) -> EndpointRefusedError:
    came = await asked.make(n)
    assert {type(x) for x in came} == {EndpointRefusedError}
    error: EndpointRefusedError = came[0]
    return error


async def test_results_that_are_named_late_are_not_paid_again() -> None:
    looks = list[int]()

    def late(told: Json) -> Json:
        looks.append(1)
        return told | {"output_file_id": None} if len(looks) < 3 else told

    async with batching() as server:
        alter(server, late)
        asked = Asked(server)
        assert await asked.make(3) == await expected(3)
        assert asked.kinds == [3]


@pytest.mark.parametrize("status", [404, 200])
async def test_results_that_are_lost_are_not_paid_again(status: int) -> None:
    def reject(_: str, path: str, n: int) -> tuple[int, Json, Any] | None:
        return (status, {}, {}) if path.endswith("/content") else None

    async with batching(reject=reject) as server:
        asked = Asked(server)
        for _ in range(2):
            assert "has no results of the batch" in str(await refused(asked, 3))
        server.set(reject=None)
        assert await asked.make(3) == await expected(3)
        assert asked.kinds == [3]


async def test_a_batch_that_is_made_after_its_gateway_gave_up_is_not_made_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with batching() as server:
        create, asked = server._create, Asked(server)

        async def slow(request: web.Request, owner: str) -> web.Response:
            await request.read()

            async def later() -> None:
                await asyncio.sleep(0.5)
                await create(request, owner)

            server.tasks.append(asyncio.create_task(later()))
            raise web.HTTPBadGateway

        async def tenth(seconds: float) -> None:
            await asyncio.sleep(seconds / 10)

        monkeypatch.setattr(server, "_create", slow)
        monkeypatch.setattr("tests.llm.test_batch._brief", tenth)
        assert await asked.make(3) == await expected(3)
        assert asked.kinds == [3]


async def test_a_download_that_is_too_large_for_a_gateway_is_not_paid_again() -> None:
    def reject(method: str, _: str, n: int) -> tuple[int, Json, Any] | None:
        return (413, {}, {}) if method == "GET" else None

    async with batching(reject=reject) as server:
        asked = Asked(server)
        for _ in range(2):
            assert "HTTP 413" in str(await refused(asked, 2))
        server.set(reject=None)
        assert await asked.make(2) == await expected(2)
        assert asked.kinds == [2]


async def test_the_replies_of_a_batch_that_fails_on_its_way_are_used() -> None:
    async with batching(expire_after=2) as server:
        names = {"expired": "failed"}
        alter(server, lambda told: told | {"status": names.get(told["status"], told["status"])})
        asked = Asked(server)
        assert await asked.make(3) == await expected(3)
        assert asked.kinds == [3, 1]


async def test_batches_that_share_a_name_are_no_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with batching() as server:
        create = BatchApi.create

        async def same(api: BatchApi, file_id: str) -> RemoteBatch:
            return replace(await create(api, file_id), id=next(iter(server.batches)))

        monkeypatch.setattr(BatchApi, "create", same)
        asked = Asked(server)
        async with asked.opened() as batches:
            sent = (
                batches.send(key(0, "play"), asked._live, request(0)),
                batches.send(key(1, "judge"), asked._live, request(1)),
            )
            came = await asyncio.gather(*sent, return_exceptions=True)
        assert {type(x) for x in came} == {Reply, EndpointError}


async def test_an_error_of_one_word_is_no_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = BatchApi._lines

    async def worded(api: BatchApi, file_id: str) -> list[bytes]:
        rows = [json.loads(line) for line in await lines(api, file_id) if line]
        return [json.dumps(row | {"error": "cancelled"}).encode() for row in rows]

    monkeypatch.setattr(BatchApi, "_lines", worded)
    async with batching(expire_after=1) as server:
        asked = Asked(server)
        assert await asked.make(3) == await expected(3)
        assert asked.kinds == [3, 2]


@pytest.mark.parametrize("status", [404, 409, 500])
async def test_a_batch_that_cannot_be_cancelled_is_told_at_once(status: int) -> None:
    async with batching(reject=lambda *_: (status, {}, {})) as server:
        asked = Asked(server)
        async with asked.opened() as batches:
            with pytest.raises(EndpointRefusedError):
                await batches._cancel("batch_1")
        assert len(server.requests) == 1


async def test_a_refused_setting_is_known_after_a_restart() -> None:
    def script(n: int, _: str, body: Json) -> tuple[int, Json] | None:
        error = {"code": "unsupported_parameter", "param": "seed", "message": "no seed"}
        return (400, {"error": error}) if "seed" in body else None

    async with batching(script=script) as server:
        dead = Asked(server, MemoryLog(dies="after ended"))
        await dead.make(3)
        asked = Asked(server, replace(dead.log, dies=""))
        assert all(isinstance(text, str) for text in await asked.make(3))
        assert asked.kinds == [3, 3]


async def test_a_login_in_the_url_is_sent_in_a_header() -> None:
    async with batching() as server:
        server.url = server.url.replace("//", "//me:secret@")
        asked = Asked(server, endpoint={"api_key": None})
        assert await asked.make(2) == await expected(2)


async def test_a_compression_bomb_stays_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    packed = web.Response(body=bomb, headers={"Content-Encoding": "gzip"})
    async with batching() as server:
        monkeypatch.setattr(server, "_content", lambda _: packed)
        assert "unpacks to more than 100 times" in str(await refused(Asked(server), 1))


async def test_a_refusal_in_a_batch_lets_requests_in_flight_end() -> None:
    async with batching(script=lambda *_: (401, {})) as server:
        asked = Asked(server)
        async with asked.opened() as batches:
            sent = asyncio.create_task(batches.send(key(0), asked._live, request(0)))
            await until(lambda: server.batches)
            async with batches._admission.enter():
                await asyncio.sleep(0.5)
                assert not sent.done()
            with pytest.raises(EndpointRefusedError):
                await sent


async def test_a_reply_that_cannot_be_used_may_have_been_paid() -> None:
    async with batching(script=lambda *_: (200, {"choices": []})) as server:
        (error,) = await Asked(server).make(1)
        assert isinstance(error, EndpointError)
        assert error.maybe_paid


async def test_replies_are_used_although_the_api_was_changed() -> None:
    async with batching() as server:
        dead = Asked(server, MemoryLog(dies="after remote_id"), endpoint={"api": "responses"})
        await dead.make(2)
        asked = Asked(server, replace(dead.log, dies=""))
        assert await asked.make(2) == await expected(2)
        assert len(server.paid) == 2


async def test_a_response_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_api, "TRANSFER_S", 2)
    async with batching(create_delay_s=60) as server:
        asked = Asked(server)
        assert await asked.make(2) == await expected(2)
        assert asked.kinds == [2]


async def test_another_accounts_key_does_not_pay_for_a_batch_without_a_name() -> None:
    async with batching() as server:
        dead = Asked(server, MemoryLog(dies="before remote_id"))
        await dead.make(2)
        other = Asked(server, replace(dead.log, dies=""), endpoint={"api_key": "other"})
        assert "does not know the batch" in str(await refused(other, 2))
        asked = Asked(server, other.log)
        assert await asked.make(2) == await expected(2)
        assert len(server.batches) == 1


async def test_a_batch_that_ended_at_another_address_is_no_dead_end() -> None:
    def script(n: int, _: str, body: Any) -> tuple[int, Any]:
        return 400, {"error": {"message": "no"}}

    async with batching(script=script) as first, batching() as second:
        asked = Asked(first)
        await asked.make(1)
        rows = {i: replace(row, status="completed") for i, row in asked.log.rows.items()}
        assert await Asked(second, replace(asked.log, rows=rows)).make(1) == await expected(1)


async def test_an_old_batch_that_the_endpoint_does_not_know_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.llm.test_batch.ANSWERED", "2026-01-01T00:00:00.000+00:00")
    async with batching() as server:
        log = MemoryLog(dies="after remote_id")
        assert {type(x) for x in await Asked(server, log).make(2)} == {KilledError}
        server.batches.clear()
        assert await Asked(server, replace(log, dies="")).make(2) == await expected(2)


async def test_a_new_batch_that_the_endpoint_does_not_know_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.llm.test_batch.ANSWERED", datetime.now(UTC).isoformat())
    async with batching() as server:
        log = MemoryLog(dies="after remote_id")
        assert {type(x) for x in await Asked(server, log).make(2)} == {KilledError}
        server.batches.clear()
        came = await Asked(server, replace(log, dies="")).make(2)
        assert {type(x) for x in came} == {EndpointRefusedError}
        assert "does not know the batch" in str(came[0])
