"""Published MCP servers: an agent calls their tools, and answers with what it reads."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from typing_extensions import override

from tests.programs.mcp_server import Case, ask

REQUIRES = ("mcp-server-time", "mcp-server-fetch", "mcp-server-git")
PAGE = "Pears are in season in October."
COMMIT = "Count the pears"


def cases(site: str, repository: Path) -> dict[str, Case]:
    noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return {
        "time": Case((), (("convert_time", noon),), "+9.0h"),
        "fetch": Case(
            ("--allow-private-ips", "--ignore-robots-txt"),
            (("fetch", {"url": f"{site}/page.html"}),),
            PAGE,
        ),
        "git": Case(
            ("--repository", str(repository)),
            (("git_log", {"repo_path": str(repository)}),),
            COMMIT,
        ),
    }


def check(python: Path, folder: Path) -> str:
    """Let an agent call a tool of each."""
    with _site(folder) as site:
        told = [
            f"{name}: {ask(python.parent / f'mcp-server-{name}', folder, case)}"
            for name, case in cases(site, _repository(folder)).items()
        ]
    return "; ".join(told)


def _repository(folder: Path) -> Path:
    made = folder / "repository"
    me = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "init", "-q", made], check=True)
    commit = ["git", *me, "commit", "-q", "--allow-empty", "-m", COMMIT]
    subprocess.run(commit, cwd=made, check=True)
    return made


@contextmanager
def _site(folder: Path) -> Iterator[str]:
    """Serve a page on loopback."""
    pages = folder / "pages"
    pages.mkdir()
    (pages / "page.html").write_text(f"<html><body><article><p>{PAGE}</p></article></body></html>")

    class Quiet(SimpleHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(pages)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
