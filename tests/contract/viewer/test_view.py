"""`view` as a person starts it: an address, pages, and an end in order."""

import json
import os
import signal
import socket
import subprocess
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.processes import HANG_S, program


def browser() -> urllib.request.OpenerDirector:
    """A browser that goes through no proxy, and keeps cookies."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_pages_are_shown_until_it_is_stopped(finished_demo: Path, words: tuple[str, ...]) -> None:
    command = program("view", "--port", "0", *words)
    # Signals and an exit code are what is tried: a process of its own.
    with subprocess.Popen(
        command,
        cwd=finished_demo,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as viewer:
        assert viewer.stdout is not None
        printed = viewer.stdout.readline()
        if words:
            lines = [printed]
            while lines[-1] != "}\n":
                lines.append(viewer.stdout.readline())
            document = json.loads("".join(lines))
            assert document["schema"] == "grpo-practice.view/1"
            printed = document["url"]
        url = printed.strip()
        token = url.split("/")[3]
        assert len(token) >= 43
        with browser().open(url, timeout=HANG_S) as page:
            assert "Runs in grpo-practice.db" in page.read().decode()
        viewer.send_signal(signal.SIGINT)
        out, err = viewer.communicate(timeout=HANG_S)
    assert (viewer.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "stopped"
    assert token not in err


def test_without_a_database_it_says_how_to_begin(gp: Gp) -> None:
    ran = gp("view", "--db", "none.db")
    assert ran.code == 2
    assert "there is no database none.db yet" in ran.err
    assert not Path("none.db").exists()


def test_a_port_in_use_is_said(demo: Gp) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = demo("view", "--port", str(port))
    assert ran.code == 2
    assert ran.out == ""
    assert f"error: cannot listen on port {port}: " in ran.err
    assert "hint: --port 0 picks a free port" in ran.err
