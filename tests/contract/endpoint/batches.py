"""An endpoint with OpenAI's Files and Batch APIs, whose answers are those of the simulated one.

`async with batching(key="sk-1", expire_after=2) as server:` gives a `BatchServer`, each option of
which can be passed, and set at any time. A process of its own (`with BatchProcess(…) as server:`)
ends with the one that started it, and takes options as JSON, functions as "module:function":

    python -m tests.contract.endpoint.batches [--port 0] [--log FILE] [--faults JSON]

It prints its port. `GET /control/stats` tells the counts, and `POST /control` sets options.
"""

import argparse
import asyncio
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from pkgutil import resolve_name
from random import Random
from subprocess import PIPE, Popen
from typing import Any, Self
from urllib.request import ProxyHandler, build_opener
from uuid import uuid4

from aiohttp import web

from tests.contract.endpoint.simulated import respond

Json = dict[str, Any]
Script = Callable[[int, str, Json], tuple[int, Any] | None]
Reject = Callable[[str, str, int], tuple[int, Mapping[str, str], Any] | None]

ROOT = Path(__file__).parents[3]
TEXT = re.compile(r'("(?:content|text)": ")(?:[^"\\]|\\.)*')  # text of a reply, in either API
ENDPOINTS = ("/v1/chat/completions", "/v1/responses")
UNSET = (  # fields of a batch that are null at first
    "model errors metadata output_file_id error_file_id in_progress_at finalizing_at completed_at"
    " failed_at expired_at cancelling_at cancelled_at"
)


@dataclass
class Kept:
    """A file, or a batch with the content of its input: `told` is the object that clients see."""

    owner: str
    told: Json
    content: bytes
    downloads: int = 0

    def becomes(self, status: str) -> None:
        """Set status and time of a batch, unless it is being cancelled."""
        if self.told["status"] != "cancelling" or status == "cancelled":
            self.told |= {"status": status, f"{status}_at": int(time.time())}


@dataclass
class BatchServer:
    """The options, and what was seen: `requests` that were answered, `paid` ones with a 2xx."""

    key: str | None = None  # the only bearer token that is let in; None: any
    log: Path | None = None  # each row of `paid` is added to this file at once
    max_requests: int = 50_000  # of a batch
    max_bytes: int = 200_000_000  # of an upload
    seconds: float = 0.05  # that a batch stays in progress
    hold: bool | str = False  # statuses in which batches stay, as words; True: in_progress
    held_after: int = 0  # requests that are answered before a batch is held in progress
    create_delay_s: float = 0.0  # from making a batch until the client is told
    upload_delay_s: float = 0.0  # the same for a file
    script: Script | None = None  # n-th request of all batches, custom_id, body → status, body
    reject: Reject | None = None  # method, path, n-th of these two → status, headers, body
    expire_after: int | None = None  # answers only so many requests of the first batch
    fail_first: Json | None = None  # code and message with which the first batch fails
    fail_over: int | None = None  # `fail_first` is for all batches with more requests than this
    shuffle: int | None = None  # seed of the order of the results; None: that of the requests
    twice: bool = False  # a second line for the first result, with another reply
    unknown: bool = False  # the output begins with a custom_id that nobody sent
    truncate: float = 0  # so many downloads of each output end within its last line; inf: all
    short_download: int = 0  # so many downloads of each results file break off
    url: str = field(default="", init=False)
    files: dict[str, Kept] = field(default_factory=dict, init=False)
    batches: dict[str, Kept] = field(default_factory=dict, init=False)
    paid: list[Json] = field(default_factory=list, init=False)
    requests: list[Json] = field(default_factory=list, init=False)
    tasks: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _asked: int = field(default=0, init=False)
    _nth: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)

    def set(self, **options: Any) -> None:
        """Set options, in Python's form or that of JSON."""
        for name, value in options.items():
            assert name in {f.name for f in fields(self) if f.init}, name
            form = {"log": Path, "script": resolve_name, "reject": resolve_name}.get(name)
            setattr(self, name, form(value) if form and isinstance(value, str) else value)

    def paid_twice(self) -> list[Json]:
        """Return each body that was paid more than once, with its custom_ids (None: live)."""
        found = dict[str, list[str | None]]()
        for row in self.paid:
            found.setdefault(row["sha256"], []).append(row["custom_id"])
        return [{"sha256": s, "custom_ids": ids} for s, ids in found.items() if len(ids) > 1]

    def stats(self) -> Json:
        """Return what was asked and paid."""
        batches = [batch.told for batch in self.batches.values()]
        paid = {"paid": len(self.paid), "paid_twice": self.paid_twice()}
        return {**paid, "batches": batches, "requests": self.requests}

    async def serve(self, request: web.Request) -> web.Response:
        """Answer a request, and note it."""
        method, path = request.method, request.path
        if path.startswith("/control"):
            self.set(**(await request.json() if method == "POST" else {}))
            return web.json_response(self.stats())
        owner = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self._nth[method, path] += 1
        try:
            if self.reject and (said := self.reject(method, path, self._nth[method, path])):
                response = web.json_response(said[2], status=said[0], headers=said[1])
            elif self.key is not None and owner != self.key:
                raise web.HTTPUnauthorized(text="Incorrect API key provided.")
            else:
                response = await self._answer(request, owner)
        except web.HTTPException as e:
            error = {"message": e.text, "type": "invalid_request_error", "param": None}
            response = web.json_response({"error": {**error, "code": None}}, status=e.status)
        self.requests.append({"method": method, "path": path, "status": response.status})
        return response

    async def _answer(self, request: web.Request, owner: str) -> web.Response:
        match [request.method, *request.path.split("/")[2:]]:
            case ["POST", "chat", "completions"] | ["POST", "responses"]:
                status, said = await self._reply(request.path, await request.json())
                return web.json_response(said, status=status)
            case ["POST", "files" | "batches" as kind]:
                return await (self._upload if kind == "files" else self._create)(request, owner)
            case ["GET", "files" | "batches" as kind]:
                kept = [one.told for one in getattr(self, kind).values() if one.owner == owner]
                return _page(kept[::-1], request.query, 10_000 if kind == "files" else 100)
            case ["GET", "files" | "batches" as kind, str(name)]:
                return web.json_response(self._own(owner, kind, name).told)
            case ["GET", "files", str(name), "content"]:
                return self._content(self._own(owner, "files", name))
            case ["DELETE", "files", str(name)]:
                self.files.pop(self._own(owner, "files", name).told["id"])
                return web.json_response({"id": name, "object": "file", "deleted": True})
            case ["POST", "batches", str(name), "cancel"]:
                batch = self._own(owner, "batches", name)
                if (status := batch.told["status"]) in ("completed", "failed", "expired"):
                    raise web.HTTPConflict(text=f"Cannot cancel a batch with status '{status}'.")
                batch.becomes("cancelled" if status == "cancelled" else "cancelling")
                return web.json_response(batch.told)
            case _:
                raise web.HTTPNotFound(text=f"Invalid URL ({request.method} {request.path})")

    def _own(self, owner: str, kind: str, name: str) -> Kept:
        found: Kept | None = getattr(self, kind).get(name)
        if found is None or found.owner != owner:
            raise web.HTTPNotFound(text=f"No such object in {kind}: {name}")
        return found

    async def _upload(self, request: web.Request, owner: str) -> web.Response:
        form = await request.post()
        file = form.get("file")
        if form.get("purpose") != "batch" or not isinstance(file, web.FileField):
            raise web.HTTPBadRequest(text="A file with the purpose 'batch' is required.")
        content = file.file.read()
        if not file.filename.endswith(".jsonl"):
            raise web.HTTPBadRequest(text="Invalid file format for Batch API. Must be .jsonl")
        if len(content) > self.max_bytes:
            raise web.HTTPRequestEntityTooLarge(self.max_bytes, len(content))
        told = self._keep(owner, file.filename, "batch", content)
        await asyncio.sleep(self.upload_delay_s)
        return web.json_response(told)

    def _keep(self, owner: str, filename: str, purpose: str, content: bytes) -> Json:
        told: Json = {"id": f"file-{uuid4().hex}", "object": "file", "bytes": len(content)}
        told |= {"created_at": int(time.time()), "filename": filename, "purpose": purpose}
        self.files[told["id"]] = Kept(owner, told | {"status": "processed"}, content)
        return self.files[told["id"]].told

    def _content(self, file: Kept) -> web.Response:
        file.downloads += 1
        content = file.content
        if file.downloads <= self.truncate and file.told["filename"].endswith("_output.jsonl"):
            content = content[: (content.rstrip().rfind(b"\n") + len(content)) // 2]
        head = {"Content-Type": "application/octet-stream", "Content-Length": str(len(content))}
        is_short = file.told["purpose"] != "batch" and file.downloads <= self.short_download
        sent = content[: len(content) // 2] if is_short else content
        response = web.Response(body=sent, headers=head)
        response.force_close()  # without the bytes that its length promises
        return response

    async def _create(self, request: web.Request, owner: str) -> web.Response:
        body = await request.json()
        if body.get("endpoint") not in ENDPOINTS or body.get("completion_window") != "24h":
            raise web.HTTPBadRequest(text="Invalid endpoint or completion_window.")
        pairs = (body.get("metadata") or {}).items()
        if len(pairs) > 16 or any(len(k) > 64 or len(v) > 512 for k, v in pairs):
            raise web.HTTPBadRequest(text="metadata: at most 16 pairs, of 64 and 512 characters.")
        file, now = self._own(owner, "files", body.get("input_file_id", "")), int(time.time())
        told = dict.fromkeys(UNSET.split()) | body | {"object": "batch", "status": "validating"}
        told |= {"id": f"batch_{uuid4().hex}", "created_at": now, "expires_at": now + 86_400}
        told["request_counts"] = {"total": 0, "completed": 0, "failed": 0}
        batch = self.batches[told["id"]] = Kept(owner, told, file.content)
        answer = web.json_response(told)
        self.tasks.append(asyncio.create_task(self._run(batch, first=len(self.batches) == 1)))
        await asyncio.sleep(self.create_delay_s)
        return answer

    async def _run(self, batch: Kept, *, first: bool) -> None:
        told, path, results = batch.told, batch.told["endpoint"], list[tuple[bool, Json]]()
        await self._held(told, "validating")
        lines, errors = checked(batch.content, path, self.max_requests)
        if self.fail_first and (first if self.fail_over is None else len(lines) > self.fail_over):
            errors = [{"param": None, "line": None, **self.fail_first}]
        if errors and told["status"] != "cancelling":
            told["errors"] = {"object": "list", "data": errors}
            return batch.becomes("failed")
        told["request_counts"]["total"] = len(lines)
        reached = lines[: self.expire_after] if first else lines
        batch.becomes("in_progress")
        for n, line in enumerate(reached):
            if n == self.held_after:
                await self._held(told, "in_progress", self.seconds)
            if told["status"] == "cancelling":
                break
            status, reply = await self._reply(path, line["body"], line["custom_id"], told["id"])
            is_good = status // 100 == 2
            told["request_counts"]["completed" if is_good else "failed"] += 1
            response = {"status_code": status, "request_id": uuid4().hex, "body": reply}
            row = {"custom_id": line["custom_id"], "response": response, "error": None}
            results.append((is_good, row))
        batch.becomes("finalizing")
        await self._held(told, "finalizing")
        await self._held(told, "cancelling")
        ending = "completed" if len(reached) == len(lines) else "expired"
        ending = "cancelled" if told["status"] == "cancelling" else ending
        said = f"This request was not executed before the batch was {ending}."
        row = {"response": None, "error": {"code": f"batch_{ending}", "message": said}}
        results += [(False, {"custom_id": r["custom_id"], **row}) for r in lines[len(results) :]]
        self._store(batch, results)
        return batch.becomes(ending)

    async def _held(self, told: Json, status: str, seconds: float = 0.0) -> None:
        end = time.monotonic() + seconds
        while told["status"] == status:
            held = "in_progress" if self.hold is True else self.hold or ""
            if status not in held.split() and time.monotonic() >= end:
                break
            await asyncio.sleep(0.01)  # any thread may set options

    async def _reply(self, path: str, body: Json, *of: str) -> tuple[int, Any]:
        """Answer a live request, or, `of` custom_id and batch, one in a batch."""
        self._asked += bool(of)
        given = self.script(self._asked, of[0], body) if of and self.script else None
        sent = json.dumps(body).encode()
        status, said = given if given else await asyncio.to_thread(respond, path, sent)
        if status // 100 == 2:
            usage, (custom_id, batch) = said.get("usage") or {}, of or (None, None)
            row = {"custom_id": custom_id, "batch": batch, "path": path, "model": body.get("model")}
            row["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
            row["tokens_in"] = usage.get("prompt_tokens", usage.get("input_tokens", 0))
            row["tokens_out"] = usage.get("completion_tokens", usage.get("output_tokens", 0))
            self.paid.append(row)
            if self.log is not None:
                with self.log.open("a", encoding="utf-8") as log:
                    log.write(f"{json.dumps(row)}\n")
        return status, said

    def _store(self, batch: Kept, results: list[tuple[bool, Json]]) -> None:
        if self.shuffle is not None:
            Random(self.shuffle).shuffle(results)
        for kind in ("output", "error"):
            rows = [row for is_good, row in results if is_good == (kind == "output")]
            for row in rows[: kind == "output"]:
                other = re.sub(TEXT, r"\1Another reply.", json.dumps(row))
                rows[1:1] = [json.loads(other)] * self.twice
                rows[:0] = [row | {"custom_id": "unknown"}] * self.unknown
            lines = [json.dumps({"id": f"batch_req_{uuid4().hex}", **row}) + "\n" for row in rows]
            if lines:
                name = f"{batch.told['id']}_{kind}.jsonl"
                file = self._keep(batch.owner, name, "batch_output", "".join(lines).encode())
                batch.told[f"{kind}_file_id"] = file["id"]


def checked(content: bytes, endpoint: str, most: int) -> tuple[list[Json], list[Json]]:
    """Return the requests of a file, and the errors that fail its batch."""
    texts, lines, seen = content.splitlines(), list[Json](), set[str]()
    wrong = list[tuple[str, str | None, int | None]]()
    if not texts or len(texts) > most:
        wrong.append(("too_many_tasks" if texts else "empty_file", None, None))
    for n, text in enumerate(texts[:most], 1):
        try:
            line = json.loads(text)
            custom_id, body = line["custom_id"], line["body"]
            method, url, model = line["method"], line["url"], body["model"]
        except ValueError:
            wrong.append(("invalid_json_line", None, n))
        except (LookupError, TypeError) as e:
            wrong.append(("missing_required_parameter", str(e).strip("'"), n))
        else:
            lines.append(line)
            found = (
                (custom_id in seen, "duplicate_custom_id", "custom_id"),
                (method != "POST", "invalid_method", "method"),
                (url != endpoint, "invalid_url", "url"),
                (body.get("stream"), "streaming_unsupported", "body.stream"),
                (model != lines[0]["body"]["model"], "mismatched_model", "body.model"),
            )
            wrong += [(code, param, n) for is_so, code, param in found if is_so]
            seen.add(custom_id)
    return lines, [{"code": c, "message": f"{c}: {p}", "param": p, "line": n} for c, p, n in wrong]


def _page(told: list[Json], query: Mapping[str, str], most: int) -> web.Response:
    told = [one for one in told if query.get("purpose") in (None, one.get("purpose"))]
    ids = [one["id"] for one in told]
    limit, after = int(query.get("limit", 20)), query.get("after")
    if not 1 <= limit <= most or (after and after not in ids):
        raise web.HTTPBadRequest(text=f"Invalid limit (1 to {most}) or after.")
    start = ids.index(after) + 1 if after else 0
    shown, rest = ids[start : start + limit] or [None], ids[start + limit :]
    ends = {"first_id": shown[0], "last_id": shown[-1], "has_more": bool(rest)}
    return web.json_response({"object": "list", "data": told[start : start + limit], **ends})


@asynccontextmanager
async def batching(port: int = 0, **options: Any) -> AsyncIterator[BatchServer]:
    """Serve while the block runs, on a free port of this machine unless told one."""
    server = BatchServer()
    server.set(**options)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{_:.*}", server.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
        for task in server.tasks:
            task.cancel()
        for ended in await asyncio.gather(*server.tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


@dataclass
class BatchProcess:
    """The server in a process of its own, while the block runs."""

    faults: Json = field(default_factory=dict)
    log: Path | None = None
    port: int = 0
    url: str = field(default="", init=False)
    process: Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        options = {"log": self.log and str(self.log.absolute()), **self.faults}
        words = ["-m", __name__, f"--port={self.port}", f"--faults={json.dumps(options)}"]
        # The end of its input tells the server to end, however we do.
        self.process = Popen([sys.executable, *words], cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def control(self, **options: Any) -> Json:
        """Set options; return what was asked and paid."""
        url, sent = f"http://127.0.0.1:{self.port}/control", json.dumps(options).encode()
        with build_opener(ProxyHandler({})).open(url, sent, 60) as answer:
            return dict(json.load(answer))

    stats = control


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, form, default in (("port", int, 0), ("log", str, None), ("faults", json.loads, {})):
        parser.add_argument(f"--{name}", type=form, default=default)
    words = parser.parse_args()
    async with batching(words.port, **{"log": words.log, **words.faults}) as server:
        print(server.url.rpartition(":")[2].partition("/")[0], flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main())
