"""The stand-in for the Batch API does what OpenAI's own client expects, and each of its faults."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.contract.endpoint.batches import ENDPOINTS, BatchProcess, BatchServer, batching
from tests.contract.endpoint.simulated import respond
from tests.contract.project import questions
from tests.late import Late

if TYPE_CHECKING:
    import openai
    from openai.types import Batch
else:
    openai = Late("openai")

CHAT, RESPONSES = ENDPOINTS
Json = dict[str, Any]
REPLY = (200, {"choices": [{"message": {"content": "24"}}], "usage": {"prompt_tokens": 3}})


@asynccontextmanager
async def standing(
    key: str = "sk-1", **options: Any
) -> AsyncIterator[tuple[BatchServer, "openai.AsyncOpenAI"]]:
    """Serve, and yield the server and a client with this key that tries once."""
    async with batching(**{"seconds": 0.0, **options}) as server, client(server.url, key) as ours:
        yield server, ours


def client(url: str, key: str) -> "openai.AsyncOpenAI":
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0)


def asked(n: int, endpoint: str = CHAT, **more: Any) -> list[Json]:
    """Return the lines of a file with n requests."""
    key = "messages" if endpoint == CHAT else "input"
    bodies = [
        {"model": "sim", key: [{"role": "user", "content": row["question"]}], **more}
        for row in questions(n)
    ]
    return [
        {"custom_id": f"r{n}", "method": "POST", "url": endpoint, "body": body}
        for n, body in enumerate(bodies)
    ]


async def create(
    ours: "openai.AsyncOpenAI", lines: list[Json] | bytes, endpoint: str = CHAT, **more: Any
) -> "Batch":
    """Upload these lines and make a batch of them."""
    content = lines if isinstance(lines, bytes) else "\n".join(map(json.dumps, lines)).encode()
    file = await ours.files.create(file=("in.jsonl", content), purpose="batch")
    return await ours.batches.create(
        input_file_id=file.id, endpoint=cast("Any", endpoint), completion_window="24h", **more
    )


async def until(
    ours: "openai.AsyncOpenAI", batch: "Batch", true: Callable[["Batch"], object]
) -> "Batch":
    """Poll until it is true of the batch."""
    while not true(batch):
        await asyncio.sleep(0.005)
        batch = await ours.batches.retrieve(batch.id)
    return batch


async def ended(ours: "openai.AsyncOpenAI", batch: "Batch") -> "Batch":
    """Poll until the batch has ended."""
    ends = ("completed", "failed", "expired", "cancelled")
    return await until(ours, batch, lambda batch: batch.status in ends)


async def rows(ours: "openai.AsyncOpenAI", file_id: str | None) -> list[Json]:
    """Return the lines of a file."""
    assert file_id is not None
    return [json.loads(line) for line in (await ours.files.content(file_id)).text.splitlines()]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_batch_is_answered_as_the_live_endpoint_answers(
    endpoint: str, tmp_path: Path
) -> None:
    lines, log = asked(3, endpoint), tmp_path / "paid.jsonl"
    async with standing(log=log) as (server, ours):
        made = await create(ours, lines, endpoint, metadata={"run": "7"})
        assert (made.status, made.metadata) == ("validating", {"run": "7"})
        batch = await ended(ours, made)
        assert batch.status == "completed"
        assert batch.request_counts is not None
        assert batch.request_counts.to_dict() == {"total": 3, "completed": 3, "failed": 0}
        assert batch.completed_at is not None
        assert batch.error_file_id is None
        found = await rows(ours, batch.output_file_id)
        assert [row["custom_id"] for row in found] == ["r0", "r1", "r2"]
        for line, row in zip(lines, found, strict=True):
            said = respond(endpoint, json.dumps(line["body"]).encode())
            response = row["response"]
            kept = ("model", "choices", "usage") if endpoint == CHAT else ("model", "usage")
            assert response["status_code"] == said[0] == 200
            assert [response["body"][k] for k in kept] == [said[1][k] for k in kept]
        assert server.paid_twice() == []
        live: Any = lines[0]["body"]
        await (ours.chat.completions if endpoint == CHAT else ours.responses).create(**live)
        (twice,) = server.paid_twice()
        assert twice["custom_ids"] == ["r0", None]
        assert [json.loads(row) for row in log.read_text("utf-8").splitlines()] == server.paid
        assert all(row["tokens_in"] > 0 < row["tokens_out"] for row in server.paid)


async def test_files_and_batches_are_listed_the_newest_first() -> None:
    async with standing(script=lambda n, custom_id, body: REPLY) as (_, ours):
        made = [await create(ours, asked(1)) for _ in range(3)]
        first = await ours.batches.list(limit=2)
        assert [batch.id for batch in first.data] == [made[2].id, made[1].id]
        assert first.has_more
        assert [batch.id async for batch in first] == [batch.id for batch in reversed(made)]
        for batch in made:
            await ended(ours, batch)
        files = await ours.files.list(purpose="batch")
        assert [file.id for file in files.data] == [b.input_file_id for b in reversed(made)]
        assert (await ours.files.delete(files.data[0].id)).deleted
        with pytest.raises(openai.NotFoundError):
            await ours.files.retrieve(files.data[0].id)
        assert (await ours.files.retrieve(files.data[1].id)).filename == "in.jsonl"


def changed(**change: Any) -> list[Json]:
    """Return the lines of two requests, of which the second is changed."""
    one, two = asked(2)
    return [one, {**two, **change}]


@pytest.mark.parametrize(
    ("lines", "code", "line"),
    [
        (b"", "empty_file", None),
        (b"{", "invalid_json_line", 1),
        (asked(4), "too_many_tasks", None),
        (changed(custom_id="r0"), "duplicate_custom_id", 2),
        (changed(url=RESPONSES), "invalid_url", 2),
        (changed(method="GET"), "invalid_method", 2),
        (changed(body={"model": "other"}), "mismatched_model", 2),
        (changed(body={"model": "sim", "stream": True}), "streaming_unsupported", 2),
        (changed(body={}), "missing_required_parameter", 2),
    ],
)
async def test_what_openai_refuses_fails_and_costs_nothing(
    lines: list[Json] | bytes, code: str, line: int | None
) -> None:
    async with standing(max_requests=3) as (server, ours):
        batch = await ended(ours, await create(ours, lines))
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert batch.errors is not None
    assert [(e.code, e.line) for e in batch.errors.data or ()] == [(code, line)]
    assert (batch.output_file_id, server.paid) == (None, [])


async def test_a_file_too_large_or_of_another_kind_is_no_file() -> None:
    async with standing(max_bytes=10) as (server, ours):
        with pytest.raises(openai.APIStatusError, match="Maximum request body size") as e:
            await ours.files.create(file=("in.jsonl", b"x" * 11), purpose="batch")
        assert e.value.status_code == 413
        with pytest.raises(openai.BadRequestError):
            await ours.files.create(file=("in.jsonl", b"x"), purpose="fine-tune")
        with pytest.raises(openai.BadRequestError):
            await ours.files.create(file=("in.txt", b"x"), purpose="batch")
        assert server.files == {}


async def test_a_batch_that_expires_has_the_answers_until_then() -> None:
    async with standing(expire_after=1) as (server, ours):
        batch = await ended(ours, await create(ours, asked(3)))
        assert batch.status == "expired"
        assert [r["custom_id"] for r in await rows(ours, batch.output_file_id)] == ["r0"]
        left = await rows(ours, batch.error_file_id)
        assert [(r["custom_id"], r["response"], r["error"]["code"]) for r in left] == [
            ("r1", None, "batch_expired"),
            ("r2", None, "batch_expired"),
        ]
        assert [row["custom_id"] for row in server.paid] == ["r0"]
        assert (await ended(ours, await create(ours, asked(3)))).status == "completed"


async def test_a_batch_that_is_cancelled_has_the_answers_until_then() -> None:
    async with standing(hold="in_progress cancelling", held_after=1) as (server, ours):
        batch = await create(ours, asked(3))
        await until(ours, batch, lambda b: b.request_counts and b.request_counts.completed)
        assert (await ours.batches.cancel(batch.id)).status == "cancelling"
        assert (await ours.batches.retrieve(batch.id)).status == "cancelling"
        server.hold = False
        batch = await ended(ours, batch)
        assert batch.status == "cancelled"
        assert [r["custom_id"] for r in await rows(ours, batch.output_file_id)] == ["r0"]
        codes = [r["error"]["code"] for r in await rows(ours, batch.error_file_id)]
        assert codes == ["batch_cancelled"] * 2
        assert len(server.paid) == 1
        batch = await ended(ours, await create(ours, asked(1)))
        with pytest.raises(openai.ConflictError, match="status 'completed'"):
            await ours.batches.cancel(batch.id)


async def test_another_key_sees_nothing_and_a_wrong_one_is_refused() -> None:
    async with standing() as (server, ours), client(server.url, "sk-2") as theirs:
        batch = await ended(ours, await create(ours, asked(1)))
        assert [*(await theirs.batches.list()).data, *(await theirs.files.list()).data] == []
        for call in (theirs.batches.retrieve, theirs.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await call(batch.id)
        for id_ in (batch.input_file_id, batch.output_file_id):
            with pytest.raises(openai.NotFoundError):
                await theirs.files.content(id_ or "")
        server.key = "sk-1"
        with pytest.raises(openai.AuthenticationError):
            await theirs.batches.list()
        assert [one.id for one in (await ours.batches.list()).data] == [batch.id]


async def test_a_request_that_fails_is_in_the_error_file_and_not_paid() -> None:
    limit = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}

    def script(n: int, custom_id: str, body: Json) -> tuple[int, Json] | None:
        assert body["model"] == "sim"
        return (429, limit) if (n, custom_id) == (2, "r1") else REPLY

    async with standing(script=script) as (server, ours):
        batch = await ended(ours, await create(ours, asked(3)))
        (row,) = await rows(ours, batch.error_file_id)
        assert (row["custom_id"], row["error"]) == ("r1", None)
        assert (row["response"]["status_code"], row["response"]["body"]) == (429, limit)
        assert batch.request_counts is not None
        assert batch.request_counts.to_dict() == {"total": 3, "completed": 2, "failed": 1}
        assert [row["custom_id"] for row in server.paid] == ["r0", "r2"]


async def test_results_can_be_shuffled_doubled_unknown_and_cut() -> None:
    options: Json = {"shuffle": 1, "twice": True, "unknown": True, "truncate": 1}
    async with standing(short_download=1, **options) as (_, ours):
        batch = await ended(ours, await create(ours, asked(5)))
        assert batch.output_file_id is not None
        with pytest.raises(openai.APIConnectionError):
            await ours.files.content(batch.output_file_id)
        found = await rows(ours, batch.output_file_id)
        ids = Counter(row["custom_id"] for row in found)
        (twice,) = (i for i in ids if ids[i] == 2)
        assert ids == Counter([twice, "unknown", *(f"r{n}" for n in range(5))])
        one, other = (r["response"]["body"] for r in found if r["custom_id"] == twice)
        assert other["choices"][0]["message"]["content"] == "Another reply."
        assert one["choices"][0]["message"]["content"] != "Another reply."
        order = [row["custom_id"] for row in found if row["custom_id"] in {"r0", "r1", "r2"}]
        assert order != sorted(order)

    async with standing(truncate=1) as (_, ours):
        batch = await ended(ours, await create(ours, asked(2)))
        with pytest.raises(json.JSONDecodeError):
            await rows(ours, batch.output_file_id)
        assert len(await rows(ours, batch.output_file_id)) == 2


async def test_the_first_batch_or_each_large_one_fails() -> None:
    error = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}
    async with standing(fail_first=error, script=lambda *_: REPLY) as (server, ours):
        batch = await ended(ours, await create(ours, asked(2)))
        assert batch.errors is not None
        assert [(e.code, e.message) for e in batch.errors.data or ()] == [(*error.values(),)]
        assert (await ended(ours, await create(ours, asked(2)))).status == "completed"
        server.fail_over = 1
        assert (await ended(ours, await create(ours, asked(2)))).status == "failed"
        assert (await ended(ours, await create(ours, asked(1)))).status == "completed"


async def test_a_client_that_is_gone_leaves_a_batch_that_it_can_find() -> None:
    async with standing(create_delay_s=600.0, script=lambda *_: REPLY) as (_, ours):
        making = asyncio.create_task(create(ours, asked(1), metadata={"run": "7"}))
        while not (found := (await ours.batches.list()).data):
            assert not making.done()
        (batch,) = found
        assert batch.metadata == {"run": "7"}
        assert (await ended(ours, batch)).status == "completed"
        assert not making.done()
        making.cancel()


async def test_requests_are_rejected_by_method_path_and_number() -> None:
    def reject(method: str, path: str, nth: int) -> tuple[int, Json, Json] | None:
        is_early = (method, path) == ("POST", "/v1/files") and nth <= 2
        return (429, {"Retry-After": "1"}, {"error": {"message": "wait"}}) if is_early else None

    async with standing(reject=reject, script=lambda *_: REPLY) as (server, ours):
        for _ in range(2):
            with pytest.raises(openai.RateLimitError) as e:
                await create(ours, asked(1))
            assert e.value.response.headers["Retry-After"] == "1"
        await create(ours, asked(1))
        assert [(r["method"], r["path"], r["status"]) for r in server.requests] == [
            *[("POST", "/v1/files", 429)] * 2,
            ("POST", "/v1/files", 200),
            ("POST", "/v1/batches", 200),
        ]


def replied(n: int, custom_id: str, body: Json) -> tuple[int, Json]:
    """Answer at once, in the process of the server."""
    return REPLY


async def test_the_process_is_told_what_to_do_and_tells_what_it_did(tmp_path: Path) -> None:
    log = tmp_path / "paid.jsonl"
    faults = {"hold": True, "seconds": 0, "script": f"{__name__}:replied"}
    with BatchProcess(faults, log) as server:
        async with client(server.url, "sk-1") as ours:
            batch = await create(ours, asked(1))
            await until(ours, batch, lambda batch: batch.status == "in_progress")
            assert server.control(hold=False)["paid"] == 0
            await ended(ours, batch)
        stats = server.stats()
    assert (stats["paid"], stats["paid_twice"]) == (1, [])
    (row,) = stats["batches"]
    assert (row["id"], row["status"]) == (batch.id, "completed")
    assert row["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
    assert stats["requests"][0] == {"method": "POST", "path": "/v1/files", "status": 200}
    (paid,) = map(json.loads, log.read_text("utf-8").splitlines())
    assert (paid["custom_id"], paid["batch"], paid["tokens_in"]) == ("r0", batch.id, 3)
