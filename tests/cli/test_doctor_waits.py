"""`doctor` and endpoints that are slow, busy or gone: what it waits for, and what it says then."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_practice.core.calls import Reply, Request
from grpo_practice.llm.client import Client
from grpo_practice.run.doctor import endpoints
from tests.cli.conftest import Gp
from tests.cli.test_doctor import KEY, ask, found, write
from tests.contract.endpoint.actions import Action, Wire, always, error, ok, stall
from tests.contract.endpoint.server import serving
from tests.processes import HANG_S


def give_up_soon(monkeypatch: pytest.MonkeyPatch, hangs: Callable[[Request], bool]) -> None:
    """Give up requests that hang soon, and the others never, however slow the machine is."""
    send = Client.send
    monkeypatch.setattr(endpoints, "WHOLE_S", HANG_S)

    async def sent(client: Client, request: Request, *, limit_s: float | None = None) -> Reply:
        return await send(client, request, limit_s=0.5 if hangs(request) else HANG_S)

    monkeypatch.setattr(Client, "send", sent)
    listens(monkeypatch)


def listens(monkeypatch: pytest.MonkeyPatch, *, it_does: bool = True) -> None:
    """Say whether endpoints take connections; a server that ends would leave one half open."""

    async def said(url: str) -> bool:
        return it_does

    monkeypatch.setattr(endpoints, "_listens", said)


def test_an_endpoint_that_hangs_is_asked_once_and_keeps_no_other_from_being_asked(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch, lambda request: request.model == "m-1")
    write(tmp_path)
    with serving(always(ok("4"))) as well:
        at = "judge_model.model_provider"
        other = [f"{at}.base_url={well.url}", f"{at}.model=m-2", f"{at}.api_key={KEY}"]
        ran, hangs = ask(gp, always(stall()), *other, "verify=judge")
    assert (ran.code, len(hangs.asked) < 2) == (0, True)
    assert any(s == "warning" and "did not answer within" in t for s, t in found(ran, "student"))
    assert any("answered; latency" in t for _, t in found(ran, "judge"))


def test_a_server_that_is_busy_is_no_problem_and_one_that_is_gone_is(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes the connection; a run, which waits longer, would get its answer."""
    give_up_soon(monkeypatch, lambda request: True)
    write(tmp_path)
    ran, _ = ask(gp, always(stall()))
    ((state, text), *_) = found(ran, "student")
    assert (ran.code, state) == (0, "warning"), ran.out
    assert "but accepts connections: it is busy, slow or stuck" in text

    listens(monkeypatch, it_does=False)
    ran, _ = ask(gp, always(stall()))
    assert (ran.code, found(ran, "student")[0][0]) == (3, "problem")


async def test_what_takes_no_connection_does_not_listen() -> None:
    with serving(always(ok("4"))) as server:
        assert await endpoints._listens(server.url)
        while not server.connections:  # noqa: ASYNC110 - it is another thread's
            await asyncio.sleep(0.01)
    assert not await endpoints._listens(server.url)


def test_models_at_one_address_are_asked_in_turn(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers one request after another cuts, or delays, what comes meanwhile."""
    give_up_soon(monkeypatch, lambda request: False)
    write(tmp_path)

    async def play(wire: Wire) -> bool:
        await asyncio.sleep(0.2)
        return await ok("4").play(wire)

    with serving(always(Action("slow", play))) as server:
        at = "judge_model.model_provider"
        judge = [f"{at}.base_url={server.url}", f"{at}.model=m-2", f"{at}.api_key={KEY}"]
        own = "agent.model.model_provider"
        sets = [f"{own}.base_url={server.url}", f"{own}.model=m-1", f"{own}.api_key={KEY}"]
        sets += [*judge, "verify=judge", "data.dataset=test.jsonl", "exp_id=e"]
        sets += ["concurrency=1", "judge_concurrency=1"]
        Path("e.yaml").write_text("{}")
        words = [word for text in sets for word in ("--set", text)]
        ran = gp("doctor", "--run", "--json", "--config", "e.yaml", *words)
    assert (ran.code, len(server.asked), server.most_at_once) == (0, 4, 1), ran.out


def test_endpoints_are_asked_at_the_same_time(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch, lambda request: False)
    write(tmp_path)
    with serving(always(ok("4"))) as judge:
        at = "judge_model.model_provider"
        other = [f"{at}.base_url={judge.url}", f"{at}.model=m-2", f"{at}.api_key={KEY}"]

        async def play(wire: Wire) -> bool:
            while not judge.asked:  # noqa: ASYNC110 - it is another thread's
                await asyncio.sleep(0.01)
            return await ok("4").play(wire)

        ran, _ = ask(gp, always(Action("after the judge", play)), *other, "verify=judge")
    assert ran.code == 0, ran.out


def test_an_endpoint_that_asks_for_a_long_wait_does_not_get_it(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "WHOLE_S", 3.0)
    listens(monkeypatch)
    write(tmp_path)
    ran, server = ask(gp, always(error(503, "later", {"Retry-After": "60"})))
    assert (ran.code, len(server.asked) < 2) == (0, True)
    assert any("did not answer within" in t for _, t in found(ran, "student")), ran.out


def test_a_tool_that_makes_the_endpoint_hang_is_no_problem(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch, lambda request: bool(request.tools))
    write(tmp_path)
    ran, server = ask(gp, lambda a: stall() if "tools" in a.body else ok("4"))
    assert (ran.code, len(server.asked) < 3) == (0, True)
    told = " ".join(text for _, text in found(ran, "student"))
    assert "did not answer a request with a tool in time" in told
    assert "latency" in told


def test_a_local_server_that_handles_one_request_at_a_time_is_pointed_out(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch, lambda request: False)
    write(tmp_path)

    async def play(wire: Wire) -> bool:
        counting = wire.asked.body.get("max_tokens") == 32
        # The second waits twenty times as long as the first: no machine is that uneven.
        await asyncio.sleep(1 if counting and wire.asked.n == 4 else 0.05)
        return await ok("4").play(wire)

    ran, server = ask(gp, always(Action("serial", play)), "concurrency=8")
    assert (ran.code, len(server.asked), ran.document["requests"]) == (0, 4, 4), ran.out
    assert "4 tiny requests" in ran.err
    (line,) = (f for f in ran.document["findings"] if "one request at a time" in f["sentence"])
    assert (line["about"], line["severity"]) == ("student", "warning")
    assert line["hint"].endswith("--set concurrency=1")
