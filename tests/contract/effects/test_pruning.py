"""A pruned library: what goes, what stays, what is only said."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.effects_project import Measured, measurable

OTHERS = " + ".join(f"hidden(E{n})" for n in range(1, 9) if n != 3)
"""Number of the experiences that were not shown, but for E3."""
HARM = f"0.5 + 0.2 * hidden(E3) - 0.05 * ({OTHERS}) + noise / 4"
_MEASURED: list[bytes] = []
"""Database of the project below, which is measured once per process."""


@pytest.fixture
async def project(tmp_path: Path) -> Measured:
    """A project with 8 experiences, measured by 40 questions; `reward` says what they do."""
    project = await measurable(tmp_path / "p")
    if _MEASURED:
        project.db.write_bytes(_MEASURED[0])
    else:
        project.upload("held", 24, 64)
        await project.measure(library=await project.library(8))
        _MEASURED.append(project.db.read_bytes())
    library = project.query("SELECT library_id FROM branches WHERE run_id = 'rules8'")[0][0]
    project.name = f"L{library}"
    return project


def reward(project: Measured, sql: str) -> None:
    """Replace each reward by an expression in `hidden(E)`, `shown` (their number) and noise."""
    for n in range(1, 9):
        sql = sql.replace(f"hidden(E{n})", f"""(coalesce(r.left_out, '') LIKE '%"E{n}"%')""")
    shown = "(8 - json_array_length(coalesce(r.left_out, '[]')))"
    sql = sql.replace("shown", shown).replace("noise", "((r.rollout_id * 7919) % 101) / 101.0")
    project.change(
        f"""UPDATE verdicts SET reward = min(max((
        SELECT {sql} FROM rollouts r WHERE r.rollout_id = verdicts.rollout_id), 0.0), 1.0)
        WHERE rollout_id IN (SELECT rollout_id FROM v_rollouts WHERE run_id LIKE '%/effect/%')"""
    )


def prune(project: Measured, max_tokens: int | None = None) -> Any:
    return Workspace(project.db).prune(project.name, max_tokens=max_tokens)


def counts(project: Measured) -> list[int]:
    return [project.count(name) for name in ("libraries", "operations", "experience_texts")]


@pytest.mark.long
async def test_what_is_likely_to_do_harm_goes_and_nothing_else(project: Measured) -> None:
    workspace = Workspace(project.db)
    reward(project, HARM)
    last = workspace.experiences("toy").library
    report = prune(project)
    assert [(one.of.experience.id, one.reason) for one in report.removed] == [("E3", "harm")]
    made = f"L{report.library.id}"
    assert [e.id for e in report.library.experiences] == [f"E{n}" for n in (1, 2, 4, 5, 6, 7, 8)]
    assert f"{made} is {project.name} without E3: 7 experiences" in report.sentence
    assert report.next_command == f"grpo-practice eval --run rules8 --arms none,full,{made}"
    document = report.document()
    assert document["schema"] == "grpo-practice.prune/1"
    assert [one["id"] for one in document["removed"]] == ["E3"]
    assert "gain" not in str(document)
    assert workspace.experiences("toy").library.id == last.id
    assert workspace.experiences(made).library == report.library
    assert project.wrong == []
    ((why,),) = project.query(
        "SELECT reason FROM operations WHERE library_id = ?", report.library.id
    )
    assert why.startswith("likely to do harm (P = 1.00): measured by rules8/effect/L")

    before = counts(project)
    assert prune(project).library.id == report.library.id, "twice is one library"
    assert counts(project) == before
    evaluated = await project.evaluate("exp_id=rules8", library=made)
    assert evaluated.run.startswith("rules8/eval/L")
    assert "[E3]" not in workspace.export(made, format="md").text


@pytest.mark.long
async def test_nothing_is_removed_where_nothing_or_everything_does_harm(
    project: Measured,
) -> None:
    before = counts(project)
    reward(project, "0.8 - 0.05 * hidden(E3) - 0.05 * hidden(E5) + noise / 8 - 0.1 / (1 + shown)")
    report = prune(project)
    assert (list(report.removed), report.library) == ([], None)
    assert report.sentence.startswith(f"{project.name} stays as it is: no experience is likely")
    assert (report.document()["exit"], report.document()["library"]) == (0, None)

    reward(project, "0.9 - shown / 12.0 + noise / 8")
    report = prune(project)
    assert (len(report.removed), report.library) == (8, None)
    assert "all 8 experiences" in report.sentence
    assert "no library is made" in report.sentence
    assert counts(project) == before


@pytest.mark.long
async def test_the_best_that_fit_are_kept_once_what_does_harm_is_gone(project: Measured) -> None:
    reward(project, "0.8 + 0.03 * shown - 0.15 * hidden(E2) - 0.1 * hidden(E7) - 0.3 + noise / 8")
    whole = prune(project).found
    all_ = [one.experience for one in whole.experiences]
    worth = {one.experience.id: one.expected or 0.0 for one in whole.experiences}
    for room in range(35, 70, 4):  # the heading and one rule take 35 tokens, each other rule 5
        report = prune(project, room)
        kept = [e.id for e in report.library.experiences]
        assert len(kept) == 1 + (room - 35) // 5
        best = max(sum(worth[e.id] for e in part) for part in combinations(all_, len(kept)))
        assert sum(worth[id_] for id_ in kept) == pytest.approx(best, abs=1e-6)
        assert {one.reason for one in report.removed} == {"room"}
    assert prune(project, 70).library is None, "all fit"

    reward(project, f"0.5 + 0.2 * hidden(E3) - 0.1 * hidden(E2) - 0.05 * ({OTHERS}) + noise / 4")
    report = prune(project, 40)
    reasons = {one.of.experience.id: one.reason for one in report.removed}
    assert reasons.pop("E3") == "harm"
    assert set(reasons.values()) == {"room"}
    assert "E2" in [e.id for e in report.library.experiences]


@pytest.mark.long
async def test_what_cannot_be_pruned_is_refused(project: Measured) -> None:
    workspace, before = Workspace(project.db), counts(project)
    with pytest.raises(Exception, match="--max-tokens 20: with its heading, the shortest"):
        prune(project, 20)
    with pytest.raises(Exception, match=r"of L\d+ \(toy\) are not measured") as refused:
        workspace.prune("toy")
    error: Any = refused.value
    assert ": grpo-practice experiences effect --run L" in str(error.hint)
    with pytest.raises(Exception, match="there is no run 'nobody'"):
        workspace.prune("nobody")
    assert counts(project) == before

    other = await project.library(9)
    with pytest.raises(Exception, match="50 requests spent so far"):
        await project.measure(library=other, max_requests=50)
    with pytest.raises(Exception, match=r"is not complete: \d of 5 steps are closed"):
        workspace.prune(other)
    project.upload("few", 30, 39)
    other = await project.library(10)
    report = await project.measure(library=other, dataset="few")
    assert any("too few questions: 9 questions" in note for note in report.notes)
    with pytest.raises(Exception, match="has too few questions to say"):
        workspace.prune(other)
