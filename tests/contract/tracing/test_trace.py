"""`runs trace`, and the options of traces, as they are typed."""

import os
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.project import finished
from tests.contract.receiver import collecting


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PHOENIX_", "OTEL_"))]:
        monkeypatch.delenv(name)


async def test_a_stored_run_is_sent(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = await finished(tmp_path / "p")
    monkeypatch.chdir(project.folder)
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        ran = gp("runs", "trace", "toy", "--db", "p.db")
        document = gp("runs", "trace", "toy", "--db", "p.db", "--json").document
        assert gp("runs", "trace", "toy", "--db", "p.db", "--trace-content", "no").code == 0
    assert ran.code == 0
    assert f"to {collector.url}/v1/traces" in ran.out
    assert document["schema"] == "grpo-practice.trace/1"
    assert document["spans"] == dict(sorted(collector.kinds.items()))
    assert document["traces"] == len({one.span.trace_id for one in collector.all})
    assert (document["open_groups"], document["exit"]) == (0, 0)


async def test_what_is_wrong_is_a_sentence_and_what_to_type(
    gp: Gp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = await finished(tmp_path / "p")
    monkeypatch.chdir(project.folder)
    db = ("--db", "p.db")
    ran = gp("runs", "trace", "toy", *db)
    assert ran.code == 2
    assert "no trace collector is set" in ran.err
    assert "PHOENIX_ENDPOINT" in ran.err
    ran = gp("runs", "trace", "toy", "--trace-content", "maybe", *db)
    assert ran.code == 2
    ran = gp("runs", "trace", "toy", "--trace-sample", "7", *db)
    assert (ran.code, "should be above 0" in ran.err) == (2, True)
    with collecting(always=401) as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        ran = gp("runs", "trace", "toy", *db)
        assert (ran.code, "requires a login" in ran.err) == (1, True)
        assert len(collector.paths) == 1


async def test_the_options_reach_the_traces(
    gp: Gp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = await finished(tmp_path / "p")
    monkeypatch.chdir(project.folder)
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        typed = ("eval", "--config", "c.yaml", "--db", "p.db", "--trace-content", "no")
        ran = gp(*typed, "--trace-sample", "0.5")
    assert ran.code == 0
    assert f"traces go to {collector.url}/v1/traces (PHOENIX_ENDPOINT), without texts" in ran.err
    assert 0 < collector.kinds["AGENT"] < 12
    assert all("input.value" not in one.attributes for one in collector.all)
