"""`practice.max_library_tokens`: the library stays short, and keeps what most questions support."""

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.core.errors import FingerprintError, PausedError
from grpo_practice.core.prompts.system import library_tokens
from grpo_practice.core.types import Experience, Library, Operation
from grpo_practice.practice.evidence import Evidence
from grpo_practice.practice.merge import Proposal, edits, merge, within
from grpo_practice.practice.teacher import GroupKey
from grpo_practice.run.library_refs import library_of
from grpo_practice.store import Store
from grpo_practice.store.libraries import edited
from tests.contract.project import served
from tests.practice.test_distil import GOLDEN, Said, shown, teacher
from tests.run.project import Project, finished

MOST = 150
LIMIT = f"practice.max_library_tokens={MOST}"
LIBRARY = Library(tuple(Experience(i, f"Name {i}: {'x' * 60}.") for i in (1, 2, 5)), 6)
ON = {
    "E1": Evidence({1: 1, 2: 1}),
    "E2": Evidence({1: 1}),
    "E5": Evidence({3: 1}),
}


def add(n: int, *from_ops: int) -> Operation:
    return Operation("ADD", text=f"New {n}: {'y' * 60}.", from_ops=from_ops)


PROPOSED = [Proposal(add(i, i), i, 10 + i // 2, 0) for i in range(4)]


@pytest.mark.parametrize(
    ("most", "stay"),
    [
        (1_000, ["E1", "E2", "E5", "E6", "E7"]),
        (120, ["E1", "E2", "E5", "E6"]),
        (100, ["E1", "E2", "E6"]),
        (80, ["E1", "E6"]),
        (60, ["E1"]),
        (30, []),
    ],
)
def test_what_the_fewest_questions_support_goes_first_then_the_youngest(
    most: int, stay: list[str]
) -> None:
    # Two questions stand behind the first new one, one behind the second.
    merged = [add(0, 0, 1, 2), add(3, 3)]
    kept, removed = within(most, LIBRARY, merged, (), PROPOSED, ON)
    made = edits(LIBRARY, kept, removed, PROPOSED)
    after = edited(LIBRARY, made)
    assert [e.id for e in after.experiences] == stay
    assert library_tokens(after) <= most
    assert all(op.op == "DELETE" and op.why and "no room in" in op.why for op in removed)
    assert {op.rule for op in kept} <= {None, "outvoted"}


def test_what_goes_anyway_makes_room() -> None:
    merged = [Operation("DELETE", "E1"), add(0, 0)]
    size = library_tokens(LIBRARY)
    assert within(size, LIBRARY, merged, (), PROPOSED, ON) == (tuple(merged), ())


async def test_no_library_of_the_run_is_longer_than_it_may_be(tmp_path: Path) -> None:
    whole = await finished(tmp_path / "whole")
    short = Project(tmp_path / "short")
    await short.practise(LIMIT)
    for project, fits in ((whole, False), (short, True)):
        with Store(project.db) as store:
            sizes = [library_tokens(library_of(store, f"toy:{n}").library) for n in range(4)]
        assert (max(sizes) <= MOST) == fits, sizes
    refused = short.query("SELECT reason FROM operations WHERE reason LIKE 'no room in%'")
    assert refused


async def test_what_a_run_begins_with_is_removed_where_it_is_too_long(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p")
    await project.practise("exp_id=again", LIMIT, start="toy")
    with Store(project.db) as store:
        assert library_tokens(library_of(store, "again:0").library) <= MOST
    rows = project.query(
        """SELECT source, op, reason FROM operations JOIN branches USING (branch_id)
            WHERE run_id = 'again' AND step = 0 AND source = 'prune'"""
    )
    assert rows
    assert all(op == "DELETE" and f"no room in {MOST} tokens" in why for _, op, why in rows)


@pytest.mark.long
async def test_a_run_that_is_gone_on_with_decides_alike(tmp_path: Path) -> None:
    whole, paused = Project(tmp_path / "whole"), Project(tmp_path / "paused")
    await whole.practise(LIMIT)
    for most in (30, 60):
        paused.max_requests = most
        with pytest.raises(PausedError):
            await paused.practise(LIMIT)
    paused.max_requests = None
    await paused.practise(LIMIT)
    assert paused.results() == whole.results()


async def test_the_merge_is_told_only_where_there_is_a_limit(tmp_path: Path) -> None:
    for n, override in enumerate((LIMIT, "practice.max_library_tokens=null")):
        async with served() as endpoint:
            project = Project(tmp_path / str(n))
            await project.practise(override, endpoint.override(), "practice.epochs=1")
        prompts = [str(body["messages"][-1]["content"]) for body in endpoint.bodies]
        told = [p for p in prompts if f"tokens, and may take {MOST}." in p]
        assert bool(told) == (n == 0)
        assert all("## The proposals" in p for p in told)


async def test_a_run_is_bound_to_its_limit_and_one_without_goes_on(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p")
    before = project.query("SELECT count(*) FROM calls")
    await project.practise("practice.max_library_tokens=null")
    assert project.query("SELECT count(*) FROM calls") == before
    with pytest.raises(FingerprintError, match="a different configuration"):
        await project.practise(LIMIT, "practice.epochs=3")


async def test_the_merge_is_told_how_long_the_library_is_and_may_be() -> None:
    said = Said(merge='{"operations": []}')
    proposed = [Proposal(Operation("ADD", text="C: c."), 0, 1)]
    limited = replace(teacher(said), most_library_tokens=MOST)
    on = dict.fromkeys(ON, Evidence())
    await merge(limited, LIBRARY, proposed, on, GroupKey(1, 0, 0))
    path, text = GOLDEN / "merge_limited.txt", shown(said.asked[0][1])
    if not path.exists():
        path.write_text(text, "utf-8")
        pytest.fail(f"{path.name} was missing and has been written: review it")
    assert text == path.read_text("utf-8")
