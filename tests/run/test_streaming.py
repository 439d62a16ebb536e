"""A run whose replies are streamed is the run it would be without."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import EndpointRefusedError
from grpo_practice.sim import answer
from grpo_practice.store import branches
from tests.contract.endpoint.actions import Action, Asked, error, simulated, sse
from tests.contract.endpoint.server import FaultServer
from tests.run.project import Project

PROVIDER = "evaluation.agent.model.model_provider"


def pieces(asked: Asked) -> Action:
    """The simulated endpoint, streaming when it is asked to."""
    if not asked.body.get("stream"):
        return simulated()
    told = answer({k: v for k, v in asked.body.items() if k not in ("stream", "stream_options")})
    text = told["choices"][0]["message"]["content"]
    finish = told["choices"][0]["finish_reason"]
    said = [text[i : i + 5] for i in range(0, len(text), 5)]
    deltas = [{"role": "assistant", "content": ""}, *({"content": part} for part in said)]
    chunks = [{"model": "sim", "choices": [{"index": 0, "delta": d}]} for d in deltas]
    end = {"model": "sim", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return sse(*chunks, end, {"model": "sim", "choices": [], "usage": told["usage"]}, pieces=1000)


async def practised(project: Project, server: FaultServer, *settings: str) -> None:
    at = f"{PROVIDER}.base_url={server.url}"
    await project.practise(at, "practice.epochs=1", *settings)


async def test_a_streamed_run_has_the_results_and_the_ledger_of_an_unstreamed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "new_key", lambda: bytes(32))  # else each run has its own codes
    plain, streamed = Project(tmp_path / "plain"), Project(tmp_path / "streamed")
    async with FaultServer(pieces) as server:
        await practised(plain, server)
        asked = len(server.asked)
        await practised(streamed, server, f"{PROVIDER}.stream=true")
        assert len(server.asked) == 2 * asked
    assert all(a.body["stream"] for a in server.asked[asked:])
    assert plain.results() == streamed.results()
    hashes = "SELECT hex(request_hash), tokens_in, tokens_out, finish FROM calls ORDER BY 1"
    assert plain.query(hashes) == streamed.query(hashes)


async def test_a_streamed_run_goes_on_with_what_an_unstreamed_one_paid_for(tmp_path: Path) -> None:
    plain, broken = Project(tmp_path / "plain"), Project(tmp_path / "broken")
    async with FaultServer(pieces) as server:
        await practised(plain, server)
        needed = len(server.asked)
    async with FaultServer(lambda a: pieces(a) if a.n <= 40 else error(401, "no")) as server:
        with pytest.raises(EndpointRefusedError):
            await practised(broken, server)
    ((paid,),) = broken.query("SELECT count(*) FROM calls")
    async with FaultServer(pieces) as server:
        again = (f"{PROVIDER}.stream=true", f"{PROVIDER}.send_seed=false")
        await practised(broken, server, *again)
    assert 0 < len(server.asked) == needed - paid
    assert {a.said for a in server.asked} == {"sse"}
    played = "SELECT count(*) FROM calls WHERE stage <> 'play' AND seeded"
    assert broken.query(played)[0][0] > 0  # some were answered before, and were not asked again


async def test_replies_that_were_asked_for_without_their_seed_say_so(tmp_path: Path) -> None:
    project = Project(tmp_path)
    async with FaultServer(pieces) as server:
        await practised(project, server, f"{PROVIDER}.send_seed=false")
    assert all("seed" not in asked.body for asked in server.asked)
    assert project.query("SELECT DISTINCT seeded FROM calls") == [(0,)]
