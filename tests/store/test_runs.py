"""A run's life: begun, closed step by step, restarted, restarted again, deleted."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError, DataError, FingerprintError, StoreError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import (
    Distilled,
    Experience,
    Library,
    Operation,
    Rollout,
    Sample,
    Trajectory,
    Verdict,
)
from grpo_practice.practice.merge import edits
from grpo_practice.store import Store, datasets, libraries, rollouts, steps
from grpo_practice.store.check import check
from grpo_practice.store.libraries import edited
from grpo_practice.store.queries import runs
from grpo_practice.store.records import Branch, GroupRow, StepResult
from tests.store.helpers import planned, plans, spec, upload


def result(library: Library, *merged: Operation, failed: str | None = None) -> StepResult:
    group = GroupRow(0, 1, 2, 2, 2, 2, 0.5, True, "distilled")
    made = edits(library, merged)
    return StepResult(
        groups=[group],
        distilled=[Distilled(0, operations=tuple(merged))],
        edits=made,
        library=edited(library, made),
        stats={"mean_reward": 0.5},
        failed=failed,
    )


async def close(store: Store, branch: Branch, step: int, *merged: Operation) -> Library:
    """Close a step that merges these operations; the library afterwards."""
    rows = store.read(steps.on_line, branch)
    before = next((r.library_out for r in rows if r.plan.step == step - 1), branch.library.id)
    await store.open_step(branch, step, before)
    made = await store.close_practice(
        branch, step, result(store.read(libraries.load, before), *merged)
    )
    return store.read(libraries.load, made)


def add(text: str) -> Operation:
    return Operation("ADD", text=text)


async def test_labels_are_never_used_twice_along_a_line(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 3)))
        await close(store, branch, 0, add("a"), add("b"))
        await close(store, branch, 1, Operation("DELETE", target="E2"))
        last = await close(store, branch, 2, add("c"), Operation("UPDATE", target="E1", text="A"))
        assert [(e.id, e.text) for e in last.experiences] == [("E1", "A"), ("E3", "c")]
        assert last.next_label == 4


async def test_a_failed_closing_leaves_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 1)))
        await store.open_step(branch, 0, branch.library.id)
        broken = result(branch.library, add("a"))
        twice = StepResult(
            groups=[*broken.groups, *broken.groups],
            distilled=broken.distilled,
            edits=broken.edits,
            library=broken.library,
            stats={},
        )
        with pytest.raises(Exception, match="UNIQUE"):
            await store.close_practice(branch, 0, twice)
        assert not store.read(steps.on_line, branch)[0].closed
        count = store.read(lambda db: db.execute("SELECT count(*) FROM experiences").fetchone()[0])
        assert count == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda it: replace(it, experiences=it.experiences[:1]),
        lambda it: replace(it, experiences=(*it.experiences, Experience(9, "c"))),
        lambda it: replace(it, experiences=(it.experiences[0], Experience(2, "B"))),
        lambda it: replace(it, experiences=it.experiences[::-1]),
        lambda it: replace(it, next_label=9),
    ],
    ids=["dropped", "slipped in", "reworded", "reordered", "label lost"],
)
async def test_a_step_is_not_closed_over_a_library_that_its_operations_do_not_make(
    tmp_path: Path, spoil: Callable[[Library], Library]
) -> None:
    """What edits a library between the merge and here is told so before anything is stored."""
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 1)))
        await store.open_step(branch, 0, branch.library.id)
        good = result(branch.library, add("a"), add("b"))
        bad = replace(good, library=spoil(good.library))
        with pytest.raises(StoreError, match="step 0 was not closed") as refused:
            await store.close_practice(branch, 0, bad)
        assert "must also change the edits" in (refused.value.hint or "")
        assert not store.read(steps.on_line, branch)[0].closed
        assert store.read(libraries.load, await store.close_practice(branch, 0, good)) == (
            good.library
        )


async def test_db_check_finds_a_library_that_does_not_follow_from_its_operations(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 2)))
        await close(store, branch, 0, add("a"), add("b"))
        last = await close(store, branch, 1, add("c"), Operation("DELETE", target="E1"))
        assert [e.id for e in last.experiences] == ["E2", "E3"]
    assert [text for look in check(tmp_path / "s.db") for text in look.wrong if "L" in text] == []
    with closing(sqlite3.connect(tmp_path / "s.db")) as db:
        db.execute("DELETE FROM library_items WHERE library_id = ? AND position = 0", (last.id,))
        kept = Library(last.experiences[1:], last.next_label)
        values = (1, library_sha(kept), last.id)
        db.execute("UPDATE libraries SET n = ?, sha256 = ? WHERE library_id = ?", values)
        db.commit()
    wrong = [text for look in check(tmp_path / "s.db") for text in look.wrong if "library" in text]
    assert wrong == [f"library L{last.id} is not the result of the operations of step 1"]


async def test_nested_restarts_keep_what_stands_before_them(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        first = store.begin(spec(data), plan=planned(plans(ids, 4)))
        for step in range(4):
            await close(store, first, step, add(f"first {step}"))
        second = store.begin(spec(data), restart_step=3, plan=planned(plans(ids, 4)))
        assert [e.text for e in second.library.experiences] == ["first 0", "first 1", "first 2"]
        await close(store, second, 3, add("second 3"))
        third = store.begin(spec(data), restart_step=1, plan=planned(plans(ids, 4)))
        assert [(s.branch_id, s.first) for s in third.line] == [(third.id, 1), (first.id, 0)]
        await close(store, third, 1, add("third 1"))
        assert [row.branch_id for row in store.read(steps.on_line, third)] == [first.id] + [
            third.id
        ] * 3
        assert [row.closed for row in store.read(steps.on_line, third)] == [
            True,
            True,
            False,
            False,
        ]

        def line(db: sqlite3.Connection) -> list[tuple[int, int]]:
            rows = db.execute("SELECT branch_id, from_step FROM v_line ORDER BY from_step DESC")
            return [(b, f) for b, f in rows]

        assert store.read(line) == [(s.branch_id, s.first) for s in third.line]


async def test_closed_steps_bind_a_run_to_its_configuration(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 2)))
        await close(store, branch, 0)
        assert store.begin(spec(data)).id == branch.id
        with pytest.raises(FingerprintError):
            store.begin(spec(data, identity={"a": 2}))
        assert store.begin(spec(data, identity={"a": 2}), restart_step=1).id != branch.id


def test_an_unclosed_run_takes_a_change_and_keeps_its_calls_within_reach(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, _ = upload(store)
        first = store.begin(spec(data))
        second = store.begin(spec(data, identity={"a": 2}))
        third = store.begin(spec(data, identity={"a": 3}))
        assert (second.reuses, third.reuses) == ((first.id,), (second.id, first.id))
        assert [s.branch_id for s in third.line] == [third.id]
        assert third.notices


async def test_a_library_starts_another_run_under_the_same_labels(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 2)))
        await close(store, branch, 0, add("a"), add("b"))
        given = await close(store, branch, 1, Operation("DELETE", target="E1"))
        other = store.begin(spec(data, "other", library=given))
        assert other.library.experiences == (Experience(2, "b"),)
        assert other.library.next_label == 3
        given = other.library
        store.begin(spec(data, "third", library=given))
        with pytest.raises(ConfigError, match="r cannot be deleted: other, third use") as e:
            store.delete_runs(["r"])
        assert (
            e.value.hint == "to delete all of them: grpo-practice runs delete r --with-dependants"
        )
        assert store.delete_runs(["third"]) == ["third"]
        assert sorted(store.delete_runs(["r"], with_dependants=True)) == ["other", "r"]
        assert store.read(runs.all_runs) == []


async def test_deleting_a_run_leaves_the_others_whole(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        for name in ("keep", "drop"):
            branch = store.begin(spec(data, name), plan=planned(plans(ids, 1)))
            await close(store, branch, 0, add(name))
        store.delete_runs(["drop"])
        kept = store.read(steps.on_line, store.begin(spec(data, "keep")))
        assert [e.text for e in store.read(libraries.load, kept[0].library_out).experiences] == [
            "keep"
        ]
        bad = store.read(lambda db: db.execute("PRAGMA foreign_key_check").fetchall())
        assert bad == []


async def test_a_failed_rollout_is_brought_up_to_date_and_a_scored_one_is_left(
    tmp_path: Path,
) -> None:
    from grpo_practice.store.records import RolloutPrompt

    with Store(tmp_path / "s.db") as store:
        data, ids = upload(store)
        branch = store.begin(spec(data), plan=planned(plans(ids, 1)))
        row = store.read(steps.on_line, branch)[0]
        sample = store.read(datasets.samples_of, row.plan)[0]
        told = RolloutPrompt(1, "system", None)
        failed = Rollout(0, 0, sample, Trajectory("error", reason="provider", error="down"))
        await store.save_rollout(branch, 0, failed, told)
        await store.flushed()
        found = store.read(rollouts.stored, branch, row, transcripts=False)
        assert found[0, 0][1].reward is None
        good = Rollout(0, 0, sample, Trajectory("ok", "0"), Verdict(1.0, "fine", "0"))
        await store.save_rollout(branch, 0, good, told)
        await store.flushed()
        stored = store.read(rollouts.stored, branch, row, transcripts=False)[0, 0][1]
        assert (stored.played.outcome, stored.verdict) == ("ok", good.verdict)
        await store.save_rollout(
            branch, 0, Rollout(0, 0, sample, Trajectory("ok", "0"), Verdict(0.0)), told
        )
        await store.flushed()
        stored = store.read(rollouts.stored, branch, row, transcripts=False)[0, 0][1]
        assert stored.reward == 1.0


def test_the_same_rows_are_the_same_dataset_and_others_need_replace(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        rows = [Sample("q", 0), Sample("q", False), Sample("é\n", ["a", 1])]
        first, new = store.add_dataset("d", rows, origin="f", replace=False)
        assert new
        assert store.add_dataset("d", rows, origin="f", replace=False) == (first, False)
        assert store.read(datasets.samples, first.id) == rows
        assert [type(s.answer) for s in store.read(datasets.samples, first.id)] == [int, bool, list]
        with pytest.raises(DataError, match="other rows"):
            store.add_dataset("d", rows[:1], origin="f", replace=False)
        second, _ = store.add_dataset("d", rows[:1], origin="f", replace=True)
        assert (second.revision, store.read(datasets.get, "d").n) == (2, 1)
        assert len(store.read(datasets.samples, first.id)) == 3
        store.hide_dataset("d")
        with pytest.raises(DataError, match="no dataset"):
            store.read(datasets.get, "d")
        third, _ = store.add_dataset("d", rows[:2], origin="f", replace=False)
        assert third.revision == 3


def test_how_an_invocation_ended_is_on_record(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        data, _ = upload(store)
        branch = store.begin(spec(data))
        with pytest.raises(DataError), store.invocation(branch, "practice"):
            assert store.read(runs.get, "r").status == "running"
            raise DataError("bad")
        assert store.read(runs.get, "r").status == "failed"
        with store.invocation(branch, "practice"):
            pass
        assert store.read(runs.get, "r").status == "done"
        codes = store.read(
            lambda db: [tuple(r) for r in db.execute("SELECT exit_code, reason FROM invocations")]
        )
        assert codes == [(4, "bad"), (0, None)]


def test_an_evaluated_library_has_a_version(tmp_path: Path) -> None:
    candidate = Library((Experience(1, "a"), Experience(2, "b")), 3)
    with Store(tmp_path / "s.db") as store:
        data, _ = upload(store)
        begun = store.begin(spec(data, "h/eval", library=candidate, kind="eval"))
        assert begun.library == replace(candidate, id=begun.library.id)
        assert begun.library.id
        again = store.begin(
            spec(data, "h/eval", library=candidate, kind="eval"), restart_step=0, again=True
        )
        assert again.library.id == begun.library.id
        versioned = store.begin(spec(data, library=candidate)).library
        branch = store.begin(spec(data, "r/eval", library=versioned, kind="eval"))
        assert branch.library.id == versioned.id


def test_unknown_names_are_named(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        with pytest.raises(ConfigError, match="no run 'x'"):
            store.read(runs.get, "x")
        with pytest.raises(ConfigError, match="L9"):
            store.read(libraries.load, 9)
