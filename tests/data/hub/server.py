"""A dataset hub on this machine: what the real client library asks for, and what can go wrong.

with hub() as server:
    server.add("owner/name", {"train.jsonl": b"..."})
    subprocess.run([...], env=os.environ | server.env(folder))
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import override

PAGE = 3
"""Files of one page of a listing; the real one has 1,000."""
LFS = (".parquet", ".gz")


@dataclass
class Repo:
    """One dataset, at one commit."""

    files: dict[str, bytes]
    gated: bool = False
    """Only for those whom `token` names, with an error that says so."""
    token: str = ""
    """Needed to see it at all, or, when it is gated, to read it."""
    refs: tuple[str, ...] = ("main",)
    """Names of its one commit."""

    @property
    def sha(self) -> str:
        text = "".join(f"{name}\0{_sha(body)}\n" for name, body in sorted(self.files.items()))
        return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class Trouble:
    """Goes wrong on every path that holds `at`, `times` times."""

    status: int
    at: str = ""
    times: int = 1 << 30
    cut: bool = False
    """The body ends half-way instead."""


@dataclass
class Hub:
    """The server."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request, in order."""
    tokens: set[tuple[str, str]] = field(default_factory=set)
    """Where on the hub (`api`, `datasets`, `cdn`) which token was sent."""
    trouble: list[Trouble] = field(default_factory=list)

    def add(self, name: str, files: Mapping[str, bytes], **traits: Any) -> Repo:
        """The dataset has these files now."""
        self.repos[name] = Repo(dict(files), **traits)
        return self.repos[name]

    def fetched(self) -> list[str]:
        """The files whose bytes were asked for, in order."""
        blobs = {_sha(body): name for r in self.repos.values() for name, body in r.files.items()}
        paths = [path.split("/") for method, path in self.asked if method == "GET"]
        return [
            blobs[parts[2]] if parts[1] == "cdn" else "/".join(parts[6:])
            for parts in paths
            if parts[1] == "cdn" or "resolve" in parts
        ]

    def env(self, home: Path) -> dict[str, str]:
        """Variables for a program that shall use this hub, with its cache under `home`."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub that answers on a free port of this machine, until the block ends."""
    state = Hub()

    class Handler(_Handler):
        hub = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.hub.asked.append((self.command, path))
        sent = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.hub.tokens |= {(path.split("/")[1], sent)} if sent else set()
        trouble = next((t for t in self.hub.trouble if t.at in path and t.times > 0), None)
        if trouble and (not trouble.cut or self.command == "GET"):
            trouble.times -= 1
            if not trouble.cut:
                self._say(trouble.status, {"error": f"told to fail; {sent}"})
                return
        self._cut = bool(trouble and trouble.cut and self.command == "GET")
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["cdn", sha]:
                found = [b for r in self.hub.repos.values() for b in r.files.values()]
                self._body(next(b for b in found if _sha(b) == sha), {})
            case ["api", "datasets", owner, name, *rest]:
                self._api(f"{owner}/{name}", rest, parse_qs(url.query), sent)
            case ["datasets", owner, name, "resolve", revision, *rest]:
                self._resolve(f"{owner}/{name}", revision, "/".join(rest), sent)
            case _:
                self._say(404, {"error": "not found"})

    def _repo(self, name: str, revision: str, sent: str, *, reading: bool) -> Repo | None:
        """The dataset; None when this was answered with an error."""
        repo = self.hub.repos.get(name)
        allowed = repo and (not repo.token or sent == repo.token)
        if repo is None or not (allowed or repo.gated):
            status = 404 if sent else 401  # it tells strangers nothing
            self._say(status, {"error": "Repository not found"}, code="RepoNotFound")
        elif not allowed and reading:
            status = 403 if sent else 401
            self._say(status, {"error": f"Access to {name} is restricted"}, code="GatedRepo")
        elif revision not in (*repo.refs, repo.sha):
            self._say(404, {"error": "Invalid rev id"}, code="RevisionNotFound")
        else:
            return repo
        return None

    def _api(self, name: str, rest: list[str], query: dict[str, list[str]], sent: str) -> None:
        revision = rest[1] if len(rest) > 1 else "main"
        repo = self._repo(name, revision, sent, reading=rest[:1] == ["tree"])
        if repo is None:
            return
        names = sorted(repo.files)
        if rest[:1] != ["tree"]:
            siblings = [{"rfilename": path} for path in names]
            about = {"id": name, "sha": repo.sha, "private": False, "gated": repo.gated}
            self._say(200, about | {"siblings": siblings, "tags": [], "downloads": 0, "likes": 0})
            return
        start = int(query.get("cursor", ["0"])[0])
        page = [_entry(path, repo.files[path]) for path in names[start : start + PAGE]]
        more = {}
        if start + PAGE < len(names):
            next_url = f"{self.hub.url}{urlsplit(self.path).path}?recursive=True"
            more = {"Link": f'<{next_url}&cursor={start + PAGE}>; rel="next"'}
        self._say(200, page, headers=more)

    def _resolve(self, name: str, revision: str, path: str, sent: str) -> None:
        repo = self._repo(name, revision, sent, reading=True)
        if repo is None:
            return
        if path not in repo.files:
            self._say(404, {"error": "Entry not found"}, code="EntryNotFound")
            return
        body = repo.files[path]
        headers = {"X-Repo-Commit": repo.sha, "ETag": f'"{hashlib.sha1(body).hexdigest()}"'}
        if not path.endswith(LFS):
            self._body(body, headers)
            return
        headers |= {"X-Linked-Etag": f'"{_sha(body)}"', "X-Linked-Size": str(len(body))}
        # As the real one, on another host, to which no token may be sent.
        elsewhere = self.hub.url.replace("127.0.0.1", "localhost")
        headers["Location"] = f"{elsewhere}/cdn/{_sha(body)}"
        self._send(302, b"", headers)

    def _body(self, body: bytes, headers: dict[str, str]) -> None:
        begin = int((self.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
        self._send(206 if begin else 200, body[begin:], headers)

    def _say(
        self, status: int, value: Any, *, code: str = "", headers: dict[str, str] | None = None
    ) -> None:
        sent = {"Content-Type": "application/json"} | (headers or {})
        if code:
            sent |= {"X-Error-Code": code, "X-Error-Message": value["error"]}
        self._send(status, json.dumps(value).encode(), sent)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if self._cut else body)
        if self._cut:
            self.close_connection = True

    _cut = False


def _entry(path: str, body: bytes) -> dict[str, Any]:
    entry = {"type": "file", "path": path, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
    if path.endswith(LFS):
        entry["lfs"] = {"oid": _sha(body), "size": len(body), "pointerSize": 130}
    return entry
