"""What becomes of a rollout, and of a run, when the way to the endpoint is at fault."""

import asyncio
import socket
from pathlib import Path

import pytest

from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.contract.endpoint.actions import (
    RESET,
    Action,
    Asked,
    always,
    completion,
    cut,
    drip,
    hang_up,
    in_turn,
    raw,
    reset,
    stall,
    status,
)
from tests.contract.endpoint.server import FaultServer, serving
from tests.fakes import FakeSleep
from tests.faults.conftest import ASK, DEADLINE, GOOD, Evaluate, each_then_good, of_first_question
from tests.processes import HANG_S

PEM = Path(__file__).parents[1] / "llm" / "localhost.pem"


def connect(server: FaultServer, *, n: int = 8, timeout_s: float = 5.0, tries: int = 2) -> Client:
    endpoint = Endpoint(server.url, timeout_s=timeout_s, max_tries=tries)
    return Client(endpoint, Limit(n), notice=lambda _: None, sleep=FakeSleep())


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
def test_1_18_where_nobody_answers_the_run_stops_after_some_tries(
    evaluate: Evaluate, waits: FakeSleep, url: str
) -> None:
    with serving(always(GOOD)) as server:
        seen = evaluate(server, "--base-url", url)
        assert server.connections == 0
    assert seen.code == 3
    assert f"cannot reach {url}" in seen.told["message"]
    assert "base_url" in seen.told["hint"]
    assert len(waits.slept) == 4


async def test_1_19_a_connection_that_is_never_accepted_is_given_up_and_tried_again() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fill = [socket.socket() for _ in range(3)]  # the queue is full: the next one hangs
        for sock in fill:
            sock.setblocking(False)
            sock.connect_ex(deaf.getsockname())
        url = "http://127.0.0.1:%d/v1" % deaf.getsockname()[1]  # noqa: UP031
        endpoint = Endpoint(url, connect_timeout_s=0.1, max_tries=3)
        client = Client(endpoint, Limit(1), notice=lambda _: None, sleep=FakeSleep())
        async with client, asyncio.timeout(HANG_S):
            with pytest.raises(EndpointRefusedError, match="cannot reach"):
                await client.send(ASK)
        for sock in fill:
            sock.close()
    assert Endpoint(url).connect_timeout_s == 10


def test_1_21_a_body_that_ends_too_early_is_asked_for_again(evaluate: Evaluate) -> None:
    faults = [spoil(GOOD, after) for spoil in (cut, reset) for after in (0, 1, 60)]
    with serving(each_then_good(*faults)) as server:
        seen = evaluate(server, "-k", "2")
    assert (seen.outcomes, seen.tries) == ({"ok": 10}, [2] * len(faults) + [1] * 4)


WRONG_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


NO_HTTP = [
    hang_up(),
    raw(b"\x16\x03\x01 garbage\r\n\r\n"),
    raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}"),
    raw(WRONG_CHUNKS + b'5\r\n{"cho\r\n'),
    raw(WRONG_CHUNKS + b"zz\r\n{}\r\n0\r\n\r\n"),
    status(200, completion("24"), {"Content-Encoding": "gzip"}),
]


def test_1_21_an_answer_that_is_no_http_is_asked_for_again(evaluate: Evaluate) -> None:
    with serving(each_then_good(*NO_HTTP)) as server:
        seen = evaluate(server, "-k", "2")
    assert (seen.outcomes, seen.tries) == ({"ok": 10}, [2] * len(NO_HTTP) + [1] * 4)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("greeting", [b"", b"220 mail\r\n", RESET])
def test_1_21_a_connection_that_closes_before_anything_is_asked_is_opened_again(
    evaluate: Evaluate, greeting: bytes
) -> None:
    with serving(always(GOOD), greet=lambda k: greeting if k == 1 else None) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 5}
    assert seen.tries[0] == 2


async def test_1_21_a_connection_that_breaks_is_on_record_as_maybe_paid() -> None:
    async with FaultServer(always(reset(GOOD, 10))) as server, connect(server) as client:
        with pytest.raises(EndpointError, match="the connection broke") as caught:
            await client.send(ASK)
    assert (caught.value.tries, caught.value.maybe_paid) == (2, True)


def test_1_22_an_answer_that_drips_for_ever_ends_with_the_deadline(evaluate: Evaluate) -> None:
    with serving(of_first_question(drip(b"\n", interval_s=0.02))) as server:
        seen = evaluate(server, *DEADLINE)
    assert seen.outcomes == {"ok": 4, "error.provider": 1}
    assert seen.failures == [("provider", None, 5, 1)]
    assert "no complete response in time" in seen.first["error"]


@pytest.mark.parametrize("after", [0, 30])
def test_1_22_an_answer_that_stops_coming_ends_with_the_deadline(
    evaluate: Evaluate, after: int
) -> None:
    with serving(in_turn(stall(GOOD, after), stall(), GOOD)) as server:
        seen = evaluate(server, *DEADLINE)
    assert seen.outcomes == {"ok": 5}
    assert seen.tries[0] >= 3


def test_1_22_blank_lines_before_a_good_answer_harm_nothing(evaluate: Evaluate) -> None:
    with serving(always(drip(b"\n", interval_s=0.01, times=5, then=GOOD))) as server:
        seen = evaluate(server)
    assert (seen.outcomes, seen.tries) == ({"ok": 5}, [1] * 5)


def test_1_24_an_unknown_certificate_stops_the_run(evaluate: Evaluate, waits: FakeSleep) -> None:
    with serving(always(GOOD), tls=PEM) as server:
        seen = evaluate(server)
        assert (seen.asked, waits.slept) == ([], [])  # not asked again
    assert seen.code == 3
    assert "ertificate" in seen.told["message"]
    assert "SSL_CERT_FILE" in seen.told["hint"]


def test_1_24_with_the_certificate_named_as_the_hint_says_it_works(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    with serving(always(GOOD), tls=PEM) as server:
        assert evaluate(server).outcomes == {"ok": 5}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_1_25_a_proxy_that_refuses_is_named_without_its_password(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(always(status(403))) as proxy, serving(always(GOOD)) as server:
        where = f"127.0.0.1:{proxy.port}"
        for name, url in (("HTTP_PROXY", where), ("HTTPS_PROXY", f"ann:hunter2hunter2@{where}")):
            monkeypatch.setenv(name, f"http://{url}")
        seen = evaluate(server, "--base-url", "https://127.0.0.1:9/v1")
        assert (seen.code, seen.asked) == (3, []), seen.ran
        assert where in seen.told["message"]
        assert "NO_PROXY" in seen.told["hint"]
        assert "hunter2" not in seen.ran.out + seen.ran.err
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        asked = len(proxy.asked)
        assert evaluate(server).outcomes == {"ok": 5}
        assert len(proxy.asked) == asked


async def test_1_27_after_a_thousand_cancelled_requests_the_next_one_succeeds() -> None:
    def script(asked: Asked) -> Action:
        return GOOD if free else stall()

    free = False
    async with FaultServer(script) as server, connect(server, n=32) as client:
        tasks = [asyncio.create_task(client.send(ASK)) for _ in range(1000)]
        await server.was_asked(10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        free = True
        async with asyncio.timeout(HANG_S):
            got = await asyncio.gather(*(client.send(ASK) for _ in range(64)))
    assert {reply.content for reply in got} == {"24"}
