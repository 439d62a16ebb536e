"""Stand-ins for Serper, Jina search and Jina's reader, on this machine.

They answer a request by what is asked, the same each time, unless a test has scripted an answer:

    async with standins() as web:
        web.script("serper", Answer(429), Answer(body={"organic": []}))
        web.pages["https://a.example/"] = "What the page says."
"""

import asyncio
import json
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Service = Literal["serper", "jina-search", "jina-reader"]
SERPER_KEY = "serper-key-0123456789"
JINA_KEY = "jina_0123456789abcdef"
"""What the stand-ins take for a good key."""

REFUSALS: Mapping[Service, dict[str, Any]] = {
    "serper": {"message": "Unauthorized.", "statusCode": 403},
    "jina-search": {"code": 401, "name": "AuthenticationFailedError", "message": "Invalid API key"},
    "jina-reader": {"code": 401, "name": "AuthenticationFailedError", "message": "Invalid API key"},
}
NO_CREDITS = {"message": "Not enough credits", "statusCode": 400}
"""What Serper says, with status 400, to who has used up all credits."""


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    service: Service
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""
    body: Any
    """JSON; None without one."""


@dataclass(frozen=True)
class Answer:
    """What is answered to one request."""

    status: int = 200
    body: Any = None
    """JSON, or a text as it is."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False
    """True where the connection breaks off in the middle of the body."""


def found(query: str, n: int) -> list[dict[str, str]]:
    """What a search for it finds unless scripted: `n` pages, one domain each."""
    slug = "-".join(re.findall(r"\w+", query.lower())[:6]) or "nothing"
    return [
        {
            "title": f"{query}, part {i}",
            "link": f"https://site{i}.example/{slug}",
            "snippet": f"Part {i} of what is known about: {query}",
        }
        for i in range(1, n + 1)
    ]


@dataclass
class Standins:
    """The three services, and what they were asked."""

    serper_url: str = ""
    jina_search_url: str = ""
    jina_reader_url: str = ""
    seen: list[Seen] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    """Text of a page by URL; any other has a text that follows from its URL."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """Answers to a query, or to a page's URL, each time."""
    results: Callable[[str, int], list[dict[str, str]]] = found
    """`title`, `link` and `snippet` of what is found for a query, at most so many."""
    wait_s: float = 0.0
    """Before each answer."""
    at_once: Counter[Service] = field(default_factory=Counter)
    """Most requests under way at the same time."""
    _now: Counter[Service] = field(default_factory=Counter)
    _scripts: dict[Service, deque[Answer]] = field(default_factory=dict)

    def script(self, service: Service, *answers: Answer) -> None:
        """The next requests to the service are answered so, one each."""
        self._scripts.setdefault(service, deque()).extend(answers)

    def asked(self, service: Service) -> list[Seen]:
        """What one service was asked."""
        return [seen for seen in self.seen if seen.service == service]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to any of them."""
        service: Service = request.match_info["service"]  # type: ignore[assignment]
        self._now[service] += 1
        self.at_once[service] = max(self.at_once[service], self._now[service])
        try:
            seen = await _seen(service, request)
            self.seen.append(seen)
            script = self._scripts.get(service)
            answer = script.popleft() if script else self._usual(seen)
            await asyncio.sleep(self.wait_s + answer.delay_s)
            return await _sent(request, answer)
        finally:
            self._now[service] -= 1

    def _usual(self, seen: Seen) -> Answer:
        key = seen.headers.get("x-api-key") or seen.headers.get("authorization")
        if key != (SERPER_KEY if seen.service == "serper" else f"Bearer {JINA_KEY}"):
            refusal = REFUSALS[seen.service]
            return Answer(refusal.get("statusCode", 401), refusal)
        what = (seen.body or {}).get("q") or (seen.body or {}).get("url") or seen.query.get("q")
        if what in self.answers:
            return self.answers[what]
        match seen.service:
            case "serper":
                return self._serper(seen.body)
            case "jina-search":
                return self._jina_search(seen.query)
            case "jina-reader":
                return self._jina_reader(seen.body["url"])

    def _serper(self, body: dict[str, Any]) -> Answer:
        results = self.results(body["q"], body["num"])
        organic = [r | {"position": i} for i, r in enumerate(results, 1)]
        return Answer(body={"searchParameters": body, "organic": organic, "credits": 1})

    def _jina_search(self, query: Mapping[str, str]) -> Answer:
        results = self.results(query["q"], int(query.get("num", 5)))
        data = [
            {"title": r["title"], "url": r["link"], "description": r["snippet"], "content": ""}
            for r in results
        ]
        return Answer(body={"code": 200, "status": 20000, "data": data})

    def _jina_reader(self, url: str) -> Answer:
        text = self.pages.get(url, f"This page, {url}, is one of many.")
        data = {"title": "A page", "url": url, "content": text, "usage": {"tokens": 9}}
        return Answer(body={"code": 200, "status": 20000, "data": data})


async def _seen(service: Service, request: web.Request) -> Seen:
    raw = await request.text()
    return Seen(
        service,
        request.method,
        "/" + request.match_info["rest"],
        dict(request.query),
        {name.lower(): value for name, value in request.headers.items()},
        json.loads(raw) if raw else None,
    )


async def _sent(request: web.Request, answer: Answer) -> web.StreamResponse:
    text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
    if not answer.cut:
        kind = "text/html" if isinstance(answer.body, str) else "application/json"
        return web.Response(
            status=answer.status, text=text, headers=answer.headers, content_type=kind
        )
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(text.encode()) + 1
    await response.prepare(request)
    await response.write(text.encode())
    assert request.transport is not None
    request.transport.close()
    return response


@asynccontextmanager
async def standins() -> AsyncIterator[Standins]:
    """The services, on one port of this machine, until the block ends."""
    it = Standins()
    app = web.Application()
    app.router.add_route("*", "/{service:serper|jina-search|jina-reader}/{rest:.*}", it.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    it.serper_url = f"{base}/serper"
    it.jina_search_url = f"{base}/jina-search"
    it.jina_reader_url = f"{base}/jina-reader"
    try:
        yield it
    finally:
        await runner.cleanup()
