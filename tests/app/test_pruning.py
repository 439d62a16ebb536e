"""A pruned library: what goes, what stays, what is only said."""

from itertools import combinations
from pathlib import Path

import pytest

from grpo_practice import Workspace
from grpo_practice.errors import ConfigError, PausedError
from grpo_practice.llm.budget import Caps
from grpo_practice.prompts.system import library_tokens
from grpo_practice.reports.pruning import PruneReport
from grpo_practice.store import Store
from grpo_practice.types import Library
from tests.app.project import finished
from tests.app.test_effect import Measured

OTHERS = " + ".join(f"hidden(E{n})" for n in range(1, 9) if n != 3)
"""Number of the experiences that were not shown, but for E3."""


@pytest.fixture
async def project(tmp_path: Path) -> Measured:
    """A project with 8 experiences, measured by 40 questions; `reward` says what they do."""
    project = Measured((await finished(tmp_path / "p")).folder)
    project.upload("held", 24, 64)
    project.name = project.library(8)
    await project.measure(library=project.name)
    return project


def reward(project: Measured, sql: str) -> None:
    """Replace each reward by an expression in `hidden(E)`, `shown` (their number) and noise."""
    for n in range(1, 9):
        sql = sql.replace(f"hidden(E{n})", f"""(coalesce(r.left_out, '') LIKE '%"E{n}"%')""")
    shown = "(8 - json_array_length(coalesce(r.left_out, '[]')))"
    sql = sql.replace("shown", shown).replace("noise", "((r.rollout_id * 7919) % 101) / 101.0")
    update = f"""UPDATE verdicts SET reward = min(max((
        SELECT {sql} FROM rollouts r WHERE r.rollout_id = verdicts.rollout_id), 0.0), 1.0)
        WHERE rollout_id IN (SELECT rollout_id FROM v_rollouts WHERE run_id LIKE '%/effect/%')"""
    with Store(project.db) as store:
        store._write(lambda db: db.execute(update).rowcount)


def prune(project: Measured, max_tokens: int | None = None) -> PruneReport:
    return Workspace(project.db).prune(project.name, max_tokens=max_tokens)


def counts(project: Measured) -> list[int]:
    return [
        project.query(f"SELECT count(*) FROM {name}")[0][0]
        for name in ("libraries", "operations", "experience_texts")
    ]


async def test_what_is_likely_to_do_harm_goes_and_nothing_else(project: Measured) -> None:
    reward(project, f"0.5 + 0.2 * hidden(E3) - 0.05 * ({OTHERS}) + noise / 4")
    last = Workspace(project.db).experiences("toy").library
    report = prune(project)
    assert [(one.of.experience.id, one.reason) for one in report.gone] == [("E3", "harm")]
    assert report.library is not None
    assert [e.id for e in report.library.experiences] == [f"E{n}" for n in (1, 2, 4, 5, 6, 7, 8)]
    assert f"L{report.library.id} is {project.name} without E3: 7 experiences" in report.sentence
    assert report.next_command == (
        f"grpo-practice eval --run toy --arms none,full,L{report.library.id}"
    )
    document = report.document()
    assert document["schema"] == "grpo-practice.prune/1"
    assert [one["id"] for one in document["removed"]] == ["E3"]
    assert "gain" not in str(document)
    workspace = Workspace(project.db)
    assert workspace.experiences("toy").library.id == last.id
    assert workspace.experiences(f"L{report.library.id}").library == report.library
    assert not [text for finding in workspace.check().findings for text in finding.wrong]
    ((why,),) = project.query(
        "SELECT reason FROM operations WHERE library_id = ?", document_id(report)
    )
    assert why.startswith("likely to do harm (P = 1.00): measured by toy/effect/L")


def document_id(report: PruneReport) -> int:
    assert report.library is not None
    return report.library.id


async def test_twice_is_one_library(project: Measured) -> None:
    reward(project, f"0.5 + 0.2 * hidden(E3) - 0.05 * ({OTHERS}) + noise / 4")
    first = prune(project)
    before = counts(project)
    assert document_id(prune(project)) == document_id(first)
    assert counts(project) == before


async def test_where_nothing_does_harm_no_library_is_made(project: Measured) -> None:
    reward(project, "0.8 - 0.05 * hidden(E3) - 0.05 * hidden(E5) + noise / 8 - 0.1 / (1 + shown)")
    before = counts(project)
    report = prune(project)
    assert (report.gone, report.library) == ([], None)
    assert report.sentence.startswith(f"{project.name} stays as it is: no experience is likely")
    assert report.document()["exit"] == 0
    assert report.document()["library"] is None
    assert counts(project) == before


async def test_all_are_never_removed_silently(project: Measured) -> None:
    reward(project, "0.9 - shown / 12.0 + noise / 8")
    before = counts(project)
    report = prune(project)
    assert len(report.gone) == 8
    assert report.library is None
    assert "all 8 experiences" in report.sentence
    assert "no library is made" in report.sentence
    assert counts(project) == before


async def test_the_best_that_fit_are_kept(project: Measured) -> None:
    reward(
        project,
        "0.8 + 0.03 * shown - 0.15 * hidden(E2) - 0.1 * hidden(E7) - 0.3 + noise / 8",
    )
    whole = prune(project).found
    all_ = [one.experience for one in whole.experiences]
    worth = {one.experience.id: one.expected or 0.0 for one in whole.experiences}
    most = library_tokens(Library(tuple(all_)))
    for room in range(library_tokens(Library((all_[0],))), most + 3, 4):
        report = prune(project, room)
        if room >= most:
            assert report.library is None  # all fit
            continue
        assert report.library is not None
        assert library_tokens(report.library) <= room
        found = sum(worth[e.id] for e in report.library.experiences)
        best = max(
            sum(worth[e.id] for e in part)
            for n in range(1, 9)
            for part in combinations(all_, n)
            if library_tokens(Library(part)) <= room
        )
        assert found == pytest.approx(best, abs=1e-6)
        assert {one.reason for one in report.gone} == {"room"}


async def test_harm_goes_before_room_is_made(project: Measured) -> None:
    reward(project, f"0.5 + 0.2 * hidden(E3) - 0.1 * hidden(E2) - 0.05 * ({OTHERS}) + noise / 4")
    report = prune(project, 40)
    reasons = {one.of.experience.id: one.reason for one in report.gone}
    assert reasons.pop("E3") == "harm"
    assert set(reasons.values()) == {"room"}
    assert report.library is not None
    assert report.library.get("E2") is not None


async def test_what_cannot_be_pruned_is_refused(project: Measured) -> None:
    before = counts(project)
    with pytest.raises(ConfigError, match="--max-tokens 20: with its heading, the shortest"):
        prune(project, 20)
    with pytest.raises(ConfigError, match=r"of L\d+ \(toy\) are not measured") as refused:
        Workspace(project.db).prune("toy")
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("grpo-practice experiences effect --run L")
    with pytest.raises(ConfigError, match="there is no run 'nobody'"):
        Workspace(project.db).prune("nobody")
    assert counts(project) == before


async def test_half_a_measurement_prunes_nothing(project: Measured) -> None:
    other = project.library(9)
    project.caps = Caps(requests=50)
    with pytest.raises(PausedError):
        await project.measure(library=other)
    with pytest.raises(ConfigError, match=r"is not complete: \d of 5 steps are closed"):
        Workspace(project.db).prune(other)


async def test_too_few_questions_prune_nothing(project: Measured) -> None:
    other = project.library(9)
    project.upload("few", 30, 39)
    report = await project.measure(library=other, dataset="few")
    assert any("too few questions: 9 questions" in note for note in report.notes)
    with pytest.raises(ConfigError, match="has too few questions to say"):
        Workspace(project.db).prune(other)


async def test_the_pruned_library_is_evaluated_and_exported(project: Measured) -> None:
    reward(project, f"0.5 + 0.2 * hidden(E3) - 0.05 * ({OTHERS}) + noise / 4")
    made = f"L{document_id(prune(project))}"
    report = await project.evaluate(library=made)
    assert report.run.startswith("toy/eval/L")
    assert "[E3]" not in Workspace(project.db).export(made, format="md").text
