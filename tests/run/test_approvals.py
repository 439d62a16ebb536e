"""With `practice.approve`, what is learnt enters the library when a person says so."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_practice import Workspace
from grpo_practice.core.errors import ConfigError, LockedError, PausedError
from grpo_practice.store import Store
from grpo_practice.store.check import check
from tests.run.project import Project
from tests.run.test_votes import ADDS, NEW, merging, practised, telling

APPROVE = "practice.approve=true"
ONCE = (APPROVE, "practice.epochs=1")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    assert [look.name for look in check(project.db) if look.wrong] == []


def workspace(project: Project) -> Workspace:
    return Workspace(project.db)


async def test_nothing_is_in_the_instructions_before_it_is_approved(project: Project) -> None:
    report = await project.practise(APPROVE)
    assert report.library.experiences == ()
    assert report.held > 2
    shown = project.query(
        "SELECT DISTINCT t.body FROM rollouts r JOIN texts t ON t.sha256 = r.system_sha"
    )
    held = workspace(project).experiences().held
    assert [one.text for one in held if any(one.text in body for (body,) in shown)] == []
    assert len(held) == report.held
    assert report.next_command == "grpo-practice experiences list --run toy"
    done = workspace(project).approve([held[0].id, held[1].id])
    library = workspace(project).experiences().library
    assert [e.text for e in library.experiences] == [held[0].text, held[1].text]
    assert done.experiences == {held[0].id: "E1", held[1].id: "E2"}
    assert (done.library, done.left) == (library, report.held - 2)
    exported = workspace(project).export("toy", format="md").text
    assert held[0].text in exported
    assert held[2].text not in exported


async def test_after_approval_a_run_goes_on_and_pays_nothing_twice(project: Project) -> None:
    first = await project.practise(*ONCE)
    done = workspace(project).approve()
    assert done.left == 0
    again = await project.practise(*ONCE)
    assert (again.requests.new, again.library) == (0, done.library)
    more = await project.practise(APPROVE)
    shown = dict(project.query("SELECT step, library_id FROM rollouts GROUP BY 1, 2"))
    assert shown[max(shown)] == done.library.id
    assert more.requests.new > 0
    asked = project.query("SELECT DISTINCT step FROM calls WHERE invocation_id > 1")
    assert {step for (step,) in asked}.isdisjoint(row.plan.step for row in first.steps)
    assert {e.text for e in done.library.experiences} <= {e.text for e in more.library.experiences}


async def test_what_is_approved_while_a_step_is_under_way_enters_when_it_closes(
    project: Project,
) -> None:
    await project.practise(*ONCE)
    whole = Project(project.folder / "whole")
    await whole.practise(APPROVE)
    project.max_requests = 10
    with pytest.raises(PausedError):
        await project.practise(APPROVE)
    assert ("open",) in project.query("SELECT status FROM steps")
    (first, *_), before = (
        workspace(project).experiences().held,
        project.query("SELECT * FROM calls"),
    )
    done = workspace(project).approve([first.id])
    assert (done.waits, done.experiences, done.library.experiences) == (True, {}, ())
    assert [one.approved for one in workspace(project).experiences().held[:2]] == [True, False]
    assert workspace(project).approve([first.id]).waits
    project.max_requests = None
    await project.practise(APPROVE)
    assert project.query("SELECT * FROM calls")[: len(before)] == before
    made = "SELECT count(*) FROM calls WHERE step <= 2"
    assert project.query(made) == whole.query(made)
    opened, closed = project.query("SELECT library_in, library_out FROM steps WHERE step = 2")[0]
    assert project.query("SELECT count(*) FROM library_items WHERE library_id = ?", opened) == [
        (0,)
    ]
    assert closed != opened
    assert [e.text for e in workspace(project).experiences("toy:2").library.experiences] == [
        first.text
    ]
    history = workspace(project).experience("E1", "toy:2").history
    assert history.changes[0].held_since == first.step


async def test_a_step_may_learn_by_itself_and_take_in_what_was_approved(project: Project) -> None:
    await project.practise(*ONCE)
    project.max_requests = 60
    with pytest.raises(PausedError):
        await project.practise(APPROVE)
    assert ("open",) in project.query("SELECT status FROM steps WHERE step = 3")
    (_, first) = workspace(project).experiences().held
    workspace(project).approve([first.id])
    project.max_requests = None
    report = await project.practise("practice.epochs=2")
    made = project.query("SELECT cause, n FROM libraries WHERE step = 3 ORDER BY 1 DESC")
    (merged, n), (approved, more) = made
    assert (merged, approved, more) == ("merge", "approve", n + 1)
    assert len(report.library) == more
    assert first.text in [e.text for e in report.library.experiences]


async def test_what_is_rejected_is_held_no_more_and_not_again(project: Project) -> None:
    merged = merging({"op": "ADD", "text": "B: When a, do b.", "from": ["P1"]})
    says = telling(compare=NEW, propose=ADDS, merge=merged)
    assert await practised(project, says, *ONCE) == []
    (one,) = workspace(project).experiences().held
    assert workspace(project).reject([one.id]).left == 0
    assert workspace(project).experiences().held == []
    assert await practised(project, says, APPROVE) == []
    assert workspace(project).experiences().held == []
    with pytest.raises(ConfigError, match="holds no"):
        workspace(project).approve([one.id])


async def test_a_text_that_is_held_is_not_held_twice(project: Project) -> None:
    merged = merging({"op": "ADD", "text": "B: When a, do b.", "from": ["P1"]})
    says = telling(compare=NEW, propose=ADDS, merge=merged)
    await practised(project, says, APPROVE)
    rules = project.query("SELECT step, rule FROM operations WHERE source = 'merge'")
    assert rules == [(1, "held"), (3, "duplicate")]
    assert [one.step for one in workspace(project).experiences().held] == [1]


async def test_a_new_text_of_an_experience_is_held_and_the_old_one_stays(project: Project) -> None:
    added = merging({"op": "ADD", "text": "B: When a, do b.", "from": ["P1"]})
    await practised(project, telling(compare=NEW, propose=ADDS, merge=added), "practice.epochs=1")
    clearer = {"lesson": "When a, do b.", "experience": "E1", "finding": "unclear"}
    sharper = {"op": "UPDATE", "id": "E1", "text": "B: When it is a, do b."}
    says = telling(
        compare={"lessons": [clearer]},
        propose={"operations": [sharper]},
        merge=merging({**sharper, "from": ["P1"]}),
    )
    assert await practised(project, says, APPROVE) == ["B: When a, do b."]
    (one,) = workspace(project).experiences().held
    assert (one.op, one.target, one.text) == ("UPDATE", "E1", "B: When it is a, do b.")
    workspace(project).approve()
    (now,) = workspace(project).experiences().library.experiences
    assert (now.id, now.text) == ("E1", one.text)


async def test_what_the_library_says_already_is_not_approved(project: Project) -> None:
    merged = merging({"op": "ADD", "text": "B: When a, do b.", "from": ["P1"]})
    says = telling(compare=NEW, propose=ADDS, merge=merged)
    await practised(project, says, *ONCE)
    await practised(project, says, "practice.epochs=2")
    (one,) = workspace(project).experiences().held
    with pytest.raises(ConfigError, match="E1 already says exactly this") as e:
        workspace(project).approve()
    assert e.value.hint == f"grpo-practice experiences reject {one.id} --run toy"


async def test_a_restart_takes_back_what_was_approved_after_it(project: Project) -> None:
    await project.practise(APPROVE)
    early = [one for one in workspace(project).experiences().held if one.step == 1]
    assert early
    workspace(project).approve()
    assert workspace(project).experiences().held == []
    await project.practise(APPROVE, restart_step=3)
    again = workspace(project).experiences()
    assert again.library.experiences == ()
    assert [one for one in again.held if one.step == 1] == early
    assert workspace(project).experiences("toy@1").library.experiences


async def test_a_branch_that_has_closed_no_step_changes_no_step_of_another(
    project: Project,
) -> None:
    await project.practise(APPROVE)
    project.max_requests = 1
    with pytest.raises(PausedError):
        await project.practise(APPROVE, restart_step=3)
    with Store(project.db) as store:  # as where it is stopped before its first step is opened
        store._write(
            lambda db: db.execute("UPDATE steps SET status = 'planned' WHERE branch_id = 2")
        )
    steps = "SELECT * FROM steps WHERE branch_id = 1"
    before, (first, *_) = project.query(steps), workspace(project).experiences().held
    assert workspace(project).approve([first.id]).waits
    assert project.query(steps) == before
    project.max_requests = None
    report = await project.practise(APPROVE)
    assert [e.text for e in report.library.experiences] == [first.text]
    assert project.query(steps) == before


async def test_nobody_decides_while_the_run_is_worked_on(project: Project) -> None:
    await project.practise(*ONCE)
    with Store(project.db) as store, store.lock("toy"), pytest.raises(LockedError):
        await asyncio.to_thread(workspace(project).approve)


async def test_the_key_is_no_part_of_the_identity(project: Project) -> None:
    await project.practise("practice.epochs=1")
    identity = "SELECT identity FROM branches"
    before = project.query(identity)
    assert "approve" not in before[0][0]
    await project.practise(APPROVE)
    assert project.query(identity) == before
