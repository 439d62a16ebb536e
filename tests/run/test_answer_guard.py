"""A whole run learns about labels, and does not learn answers by heart."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import FingerprintError
from grpo_practice.core.types import Answer, Sample
from grpo_practice.sim import stage_of
from grpo_practice.store import Store, datasets
from tests.contract.endpoint.actions import completion
from tests.contract.project import Hook, served
from tests.run.project import Project

SETTINGS = ("evaluation.verify=contains", "practice.epochs=1", "practice.batch_size=12")
LABEL = "Detail: When the hypothesis adds a detail, answer undetermined."
FIRST = "Metals: the first of them is vanadium sulphide."
LABELS: list[Answer] = ["undetermined"] * 5
UNIQUE: list[Answer] = ["vanadium sulphide", *(f"the ladle of Perey {c}" for c in "abcdef")]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    samples = [Sample(f"Question {n}?", gold) for n, gold in enumerate([*UNIQUE, *LABELS])]
    with Store(project.db) as store:
        store.add_dataset("train", samples, origin="test", replace=True)
    return project


def merging(text: str, *stands_for: str) -> Hook:
    """Every other attempt at a question is right; each group proposes; the merge says the text."""
    played = Counter[str]()

    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        stage = stage_of(body)
        if stage == "play":
            asked = body["messages"][-1]["content"]
            played[asked] += 1
            right = " ".join(map(str, [*UNIQUE, *LABELS]))
            return 200, completion(right if played[asked] % 2 else "no idea")
        if stage == "compare":
            return 200, completion(json.dumps({"lessons": [{"lesson": "Convert units."}]}))
        item = {"op": "ADD", "text": "Units: Convert them.", "from": []}
        if stage == "merge":
            item = {"op": "ADD", "text": text, "from": list(stands_for)}
        if stage in ("propose", "merge"):
            # NONE: a step is paused where all that the merge makes is quarantined.
            items = [item, {"op": "NONE"}] if stage == "merge" else [item]
            return 200, completion(json.dumps({"operations": items}))
        return None

    return hook


async def learnt(project: Project, hook: Hook, *overrides: str) -> list[str]:
    async with served(hook) as endpoint:
        report = await project.practise(endpoint.override(), *SETTINGS, *overrides)
    return [e.text for e in report.library.experiences]


async def test_a_lesson_that_names_a_label_is_learnt(project: Project) -> None:
    assert await learnt(project, merging(LABEL)) == [LABEL]


async def test_an_answer_is_kept_out_unless_the_guard_is_off(project: Project) -> None:
    assert await learnt(project, merging(FIRST)) == []
    rows = project.query("SELECT text, reason FROM operations WHERE status = 'quarantined'")
    assert rows == [(FIRST, "it gives away the answer of its own question")]
    off = "practice.answer_guard=false"
    assert await learnt(project, merging(FIRST), "exp_id=off", off) == [FIRST]
    with pytest.raises(FingerprintError):
        await learnt(project, merging(FIRST), off)


async def test_a_teacher_that_gives_every_answer_away_still_teaches(project: Project) -> None:
    lesson = "Units: Convert them."
    plain, leaks = merging(lesson), [f"Units: the answer is {gold}." for gold in UNIQUE]

    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        again = "without the answer" in body["messages"][-1]["content"]
        if stage_of(body) != "propose" or again:
            return plain(n, body)
        items = [{"op": "ADD", "text": text} for text in leaks]
        return 200, completion(json.dumps({"operations": items}))

    assert await learnt(project, hook) == [lesson]
    quarantined = "SELECT count(*) FROM operations WHERE status = 'quarantined'"
    assert project.query(quarantined) == [(0,)]


@pytest.mark.long
async def test_a_merged_operation_has_the_questions_of_the_proposals_it_stands_for(
    project: Project,
) -> None:
    async def kept(slot: int) -> bool:
        proposal = merging(FIRST, f"P{slot + 1}")
        return bool(await learnt(project, proposal, f"exp_id=only{slot}"))

    kept_first = await kept(0)
    own = project.query(
        """SELECT s.answer = '"vanadium sulphide"' FROM groups g JOIN samples s USING (sample_id)
            WHERE g.informative AND g.branch_id = 1 ORDER BY g.slot"""
    )
    assert (len(own), own.count((1,))) == (len(UNIQUE) + len(LABELS), 1)
    its = own.index((1,))
    assert kept_first is (its != 0)
    assert not await kept(its)
    assert await kept(its - 1 if its else 1)


async def test_what_stands_in_the_instructions_is_no_secret(project: Project) -> None:
    told = "evaluation.agent.agent.instructions=Choose vanadium sulphide or none."
    assert await learnt(project, merging(FIRST), told) == [FIRST]


def test_answers_are_counted_over_the_questions_of_a_dataset(tmp_path: Path) -> None:
    samples = [
        *(Sample(f"Is {n} even?", n % 2 == 0) for n in range(5)),
        Sample("Which?", ["a", "b"]),
        Sample("Which one?", ["a", "b"]),
        Sample("Who knows?"),
        *(Sample(f"Wording {n}", 7, cluster="sevens") for n in range(3)),
    ]
    with Store(tmp_path / "p.db") as store:
        row, _ = store.add_dataset("d", samples, origin="test", replace=False)
        store.add_dataset("other", samples[:2], origin="test", replace=False)
        counted = list(store.each_apart(datasets.answers, row.id))
    assert sorted(counted, key=str) == [(7, 1), (False, 2), (True, 3), (["a", "b"], 2)]
