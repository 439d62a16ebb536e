"""Libraries that no step makes: stored once, whole, and nothing to the run that goes on."""

from pathlib import Path

import pytest

from grpo_practice.core.types import Edit, Library, Operation
from grpo_practice.store import Store, branches, libraries, steps
from grpo_practice.store.check import check
from grpo_practice.store.queries import runs
from grpo_practice.store.records import Branch
from tests.run.project import Project, finished


def delete(*labels: int) -> list[Edit]:
    return [Edit(Operation("DELETE", f"E{n}", why="harm"), n, pruned=True) for n in labels]


def tip(store: Store) -> tuple[Branch, Library]:
    branch = store.read(branches.load, store.read(runs.get, "toy").head_branch)
    out = store.read(steps.on_line, branch)[-1].library_out
    return branch, store.read(libraries.load, out)


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await finished(tmp_path / "p")


def tables(project: Project) -> list[int]:
    names = ("libraries", "operations", "library_items", "experiences", "experience_texts")
    return [project.query(f"SELECT count(*) FROM {name}")[0][0] for name in names]


async def test_it_is_stored_once_with_the_operations_behind_it(project: Project) -> None:
    with Store(project.db) as store:
        branch, parent = tip(store)
        gone = parent.experiences[0]
        made = store.derive_library(
            branch, parent, delete(gone.label), cause="prune", source="prune"
        )
        assert made.experiences == parent.experiences[1:]
        assert made.next_label == parent.next_label
        assert tip(store)[1].id == parent.id
    before = tables(project)
    with Store(project.db) as store:
        again = store.derive_library(
            branch, parent, delete(gone.label), cause="prune", source="prune"
        )
    assert (again, again.id) == (made, made.id)
    assert tables(project) == before
    assert project.query(
        "SELECT cause, parent_id, step FROM libraries WHERE library_id = ?", made.id
    ) == [("prune", parent.id, None)]
    assert project.query(
        "SELECT source, op, status, step, reason FROM operations WHERE library_id = ?", made.id
    ) == [("prune", "DELETE", "applied", None, "harm")]
    # Its experiences are those of the run, not copies.
    shared = "SELECT count(*) FROM library_items WHERE library_id = ? AND experience_id IN"
    shared += " (SELECT experience_id FROM library_items WHERE library_id = ?)"
    assert project.query(shared, made.id, parent.id) == [(len(made),)]


async def test_a_new_text_and_a_new_experience_are_taken(project: Project) -> None:
    with Store(project.db) as store:
        branch, parent = tip(store)
        first, new = parent.experiences[0], parent.next_label
        edits = [
            Edit(Operation("UPDATE", first.id, "Units: Name the unit."), first.label),
            Edit(Operation("ADD", None, "Check: Read it again."), new),
        ]
        made = store.derive_library(branch, parent, edits, cause="edit", source="human")
    assert made.experiences[0].text == "Units: Name the unit."
    assert made.experiences[-1].label == new
    assert made.next_label == new + 1
    assert not any(finding.wrong for finding in check(project.db))


async def test_the_database_is_whole_and_one_that_lost_an_operation_is_not(
    project: Project,
) -> None:
    with Store(project.db) as store:
        branch, parent = tip(store)
        for e in parent.experiences[:2]:
            edits = delete(e.label)
            made = store.derive_library(branch, parent, edits, cause="prune", source="prune")
    assert not [text for finding in check(project.db) for text in finding.wrong]
    with Store(project.db) as store:
        gone = "DELETE FROM operations WHERE library_id = ?"
        store._write(lambda db: db.execute(gone, (made.id,)).rowcount)
    (wrong,) = [text for finding in check(project.db) for text in finding.wrong]
    assert wrong == f"library L{made.id} is not the result of the operations behind it"


async def test_a_run_goes_on_as_if_there_were_none(project: Project, tmp_path: Path) -> None:
    plain = await finished(tmp_path / "plain")
    with Store(project.db) as store:
        branch, parent = tip(store)
        edits = delete(*(e.label for e in parent.experiences))
        store.derive_library(branch, parent, edits, cause="prune", source="prune")
    for it in (plain, project):
        await it.practise("practice.epochs=3")
    assert project.results() == plain.results()


async def test_it_goes_with_its_run(project: Project) -> None:
    with Store(project.db) as store:
        branch, parent = tip(store)
        edits = delete(parent.experiences[0].label)
        store.derive_library(branch, parent, edits, cause="prune", source="prune")
        assert store.delete_runs(["toy"]) == ["toy"]
    assert tables(project) == [0] * 5
