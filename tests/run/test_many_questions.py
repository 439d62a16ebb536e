"""Large datasets: what is read and held is bounded by what is asked for, not by what is stored."""

import asyncio
import gc
import json
import sqlite3
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.core.calls import Address, Entry, Reply
from grpo_practice.core.errors import DataError
from grpo_practice.core.hashing import canon, digest
from grpo_practice.core.types import Sample
from grpo_practice.data.staged_samples import ROWS_IN_MEMORY
from grpo_practice.run.doctor.doctor import DoctorRequest, diagnose
from grpo_practice.sim import stage_of
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store, datasets
from grpo_practice.store.recorded_runs import RecordedSpec
from grpo_practice.store.typed_rows import RowMaker, TypedConnection
from tests.contract.project import served
from tests.run.project import Project

N = 5_000
FEW = 500
"""Rows that a command may fetch of a dataset, whatever its size: `data show` tries about 200."""


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the rows that the store's connections give to Python."""
    rows, maker = [0], TypedConnection._maker

    def counting(db: TypedConnection, names: tuple[str, ...]) -> RowMaker:
        made = maker(db, names)

        def count(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> sqlite3.Row:
            rows[0] += 1
            return made(cursor, row)

        return count

    monkeypatch.setattr(TypedConnection, "_maker", counting)

    def since() -> int:
        n, rows[0] = rows[0], 0
        return n

    return since


def many(n: int = N) -> list[Sample]:
    return [Sample(f"What is {i} + 0?", str(i)) for i in range(n)]


async def test_a_limited_run_reads_few_rows(tmp_path: Path, fetched: Callable[[], int]) -> None:
    project = Project(tmp_path)
    with Store(project.db) as store:
        store.add_dataset("many", many(), origin="x", replace=False)
    fetched()
    report = await project.evaluate("data.dataset=many", limit=3)
    assert report.score.scored == 3
    assert fetched() < FEW
    with Store(project.db) as store:
        job = project.practice_job(
            store, "data.practice_dataset_name=many", "practice.rollout_data_truncate=3"
        )
    assert len(job.sample_ids) == 3
    assert fetched() < FEW


async def test_a_practice_run_counts_the_answers_when_there_is_an_experience_to_check(
    tmp_path: Path, fetched: Callable[[], int]
) -> None:
    project = Project(tmp_path)
    with Store(project.db) as store:
        store.add_dataset("many", [*questions(6, 0), *many()], origin="x", replace=False)
    fetched()
    read, asked = [0], list[tuple[str, int]]()

    def hook(_: int, body: dict[str, Any]) -> None:
        read[0] += fetched()
        asked.append((stage_of(body), read[0]))

    few = ("data.practice_dataset_name=many", "practice.rollout_data_truncate=6")
    async with served(hook) as endpoint:
        await project.practise(endpoint.override(), *few, "practice.epochs=1")
    plays = [rows for stage, rows in asked if stage == "play"]
    assert max(plays) < FEW
    learns = [rows for stage, rows in asked if stage == "merge"]
    assert min(learns) > N  # the guard has read all of them by then


def test_a_page_of_a_dataset_reads_few_rows(tmp_path: Path, fetched: Callable[[], int]) -> None:
    workspace = Workspace(tmp_path / "p.db")
    workspace.datasets.upload("many", many())
    fetched()
    assert len(workspace.datasets.show("many", rows=3).rows) == 3
    assert workspace.datasets.list().datasets[0].n == N
    assert fetched() < FEW


class Watched(Sample):
    """A sample that a weak reference may point to."""


def alive_at_most(n: int) -> tuple[Iterator[Sample], Callable[[], int]]:
    """Yield samples; return also how many of them were alive at once, at most."""
    most = [0]

    def made() -> Iterator[Sample]:
        # Not counted by gc.get_objects(): a tuple that a thread of another test is building would
        # be held by two, which ends that thread.
        told = list[weakref.ref[Sample]]()
        for i in range(n):
            if i % 100 == 0:
                gc.collect()
                told = [known for known in told if known() is not None]
                most[0] = max(most[0], len(told))
            sample = Watched(f"q{i}", str(i))
            told.append(weakref.ref(sample))
            yield sample

    return made(), lambda: most[0]


@pytest.mark.long
def test_a_generator_is_uploaded_without_being_gathered(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "p.db")
    rows, most = alive_at_most(2_000)
    assert workspace.datasets.upload("d", rows).dataset.n == 2_000
    assert 0 < most() < 2 * ROWS_IN_MEMORY


def test_what_is_stored_is_what_a_list_of_samples_stored(tmp_path: Path) -> None:
    samples = [*many(250), Sample("b", ["x", 2], "s", "l", "c", {"é": [1.5, None]}), *many(3)]
    with Store(tmp_path / "p.db") as store:
        row, _ = store.add_dataset("d", samples, origin="x", replace=False)
        assert row.sha256 == digest([s.sha for s in samples]).hex()
        assert store.read(datasets.samples, row.id) == samples
        ids = store.read(datasets.sample_ids, row.id)
        assert ids == [*range(1, 252), 1, 2, 3]  # in order; a sample that comes again has one row


@pytest.mark.parametrize("dedup", [False, True])
def test_an_append_joins_as_lists_would(tmp_path: Path, dedup: bool) -> None:
    workspace = Workspace(tmp_path / "p.db")
    held = [Sample("a", "1"), Sample("b", "2"), Sample(" b", "3")]
    workspace.datasets.upload("d", held)
    new = [Sample("b  ", "2"), Sample("c", "1"), Sample("a", "1"), Sample("c", "1")]
    stored = workspace.datasets.upload("d", new, if_exists="append", dedup=dedup)
    added = [new[1]] if dedup else new
    with workspace._store() as store:
        assert store.read(datasets.samples, stored.dataset.id) == [*held, *added]
    assert stored.dataset.sha256 == digest([s.sha for s in [*held, *added]]).hex()
    of, left = (3, "left out") if dedup else (4, "added again (--dedup leaves them out)")
    note = f"2 of {of} rows with a question that is already stored, {left}; 1 with another answer"
    assert stored.notes[-1] == note
    again = workspace.datasets.upload("d", held, if_exists="append", dedup=True)
    assert (again.new, again.dataset.revision) == (False, 2)


def test_an_upload_that_fails_late_leaves_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "p.db")
    workspace.datasets.upload("first", many(3))

    def rows() -> Iterator[tuple[str, str]]:
        for i in range(1_000):
            yield f"q{i}", str(i)
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        workspace.datasets.upload("d", rows())
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "q", "answer": "1"}\n' * 1_000 + '{"answer": "1"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:1001: the question"):
        workspace.datasets.upload("d", file)
    with workspace._store() as store:
        assert store.read(lambda db: db.execute("SELECT count(*) FROM samples").fetchone()[0]) == 3
        assert [row.name for row in store.read(datasets.newest)] == ["first"]
    assert {path.name for path in tmp_path.iterdir()} <= {
        *("p.db", "p.db-wal", "p.db-shm", "p.db.lock", "rows.jsonl")
    }


LONG, LETTERS = 2_000, 2_000
"""Questions, and the letters of each, of a dataset of which little may be in memory at once."""


@pytest.fixture
def traced() -> Iterator[Callable[[], float]]:
    """Trace Python's memory; the peak is given as a share of the texts of `long`."""
    gc.collect()
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1] / (LONG * LETTERS)
    tracemalloc.stop()


def long(n: int = LONG) -> Iterator[dict[str, str]]:
    for i in range(n):
        yield {"question": f"{i}".ljust(LETTERS, "?"), "answer": str(i), "cluster": str(i // 2)}


@pytest.fixture
def long_texts(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "p.db")
    workspace.datasets.upload("long", long())
    workspace.datasets.upload("short", long(20))
    return workspace


EACH_ROW: dict[str, Callable[[Workspace, str], Any]] = {
    "split": lambda w, name: w.datasets.split(name),
    "split again": lambda w, name: w.datasets.split(name, if_exists="keep"),
    "sample": lambda w, name: w.datasets.sample(name, 10, f"{name}-10"),
}


@pytest.mark.long
@pytest.mark.parametrize("command", EACH_ROW)
def test_a_command_that_reads_each_row_holds_few_of_them(
    long_texts: Workspace, command: str, request: pytest.FixtureRequest
) -> None:
    do = EACH_ROW[command]
    do(long_texts, "short")  # imports what is slow to import
    if command == "split again":
        long_texts.datasets.split("long")
    peak = request.getfixturevalue("traced")
    do(long_texts, "long")
    assert peak() < 0.5


@pytest.mark.long
@pytest.mark.parametrize("data", ["long", "long.jsonl"])
async def test_doctor_holds_few_rows_of_a_dataset(
    long_texts: Workspace, tmp_path: Path, data: str, request: pytest.FixtureRequest
) -> None:
    lines = (json.dumps(row) + "\n" for row in long())
    (tmp_path / "long.jsonl").write_text("".join(lines))

    async def doctor(name: str) -> list[str]:
        config = {
            "data": {"dataset": name},
            "verify": "exact",
            "agent": {"model": {"model_provider": {"model": "sim"}}},
        }
        (tmp_path / "eval.yaml").write_text(json.dumps(config))
        asked = DoctorRequest(database=tmp_path / "p.db", config=tmp_path / "eval.yaml", env={})
        return [check.sentence for check in (await diagnose(asked)).findings]

    await doctor("short")
    peak = request.getfixturevalue("traced")
    said = await doctor(data)
    assert peak() < 0.5
    assert f"{data}: {LONG} questions" in said
    assert any(text.startswith("tried on 20 golds, 40 near misses") for text in said)


@pytest.mark.long
async def test_a_recorded_run_is_uploaded_without_being_gathered(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    workspace = Workspace(tmp_path / "p.db")
    with Store(tmp_path / "p.db") as store:
        for name, n in (("few", 20), ("rec", LONG)):
            branch = store.record(RecordedSpec(name, {}, "", "", tmp_path, simulated=True))
            with store.invocation(branch, "serve") as invocation_id:
                ledger = store.ledger(branch, invocation_id)
                await asyncio.gather(*map(ledger.put, recorded(branch.id, n)))
    workspace.datasets.upload_run("few", "few")
    peak = request.getfixturevalue("traced")
    assert workspace.datasets.upload_run("asked", "rec").dataset.n == LONG
    assert peak() < 0.5


def recorded(branch_id: int, n: int) -> Iterator[Entry]:
    reply = Reply({"role": "assistant", "content": "4"})
    for slot, row in enumerate(long(n)):
        messages = canon([{"role": "user", "content": row["question"]}])
        address, key = Address(branch_id, 0, slot, 0, "play"), canon(slot).rjust(16)
        yield Entry(address, key, 0, 0, None, b"{}", messages, "m", reply)


async def test_a_later_limit_checks_the_golds_that_were_not(
    bad_gold: Project,
) -> None:
    report = await bad_gold.evaluate("data.dataset=bad", limit=3)
    assert report.score.scored == 3
    with pytest.raises(DataError, match=r"2 answers of dataset 'bad' cannot be scored.*row 5: "):
        await bad_gold.evaluate("data.dataset=bad", limit=6)
    with pytest.raises(DataError, match=r"row 5: "):
        await bad_gold.evaluate("data.dataset=bad")


@pytest.fixture
def bad_gold(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    with Store(project.db) as store:
        samples = [*many(4), Sample("no answer"), Sample("none"), Sample("q", "7")]
        store.add_dataset("bad", samples, origin="x", replace=False)
    return project
