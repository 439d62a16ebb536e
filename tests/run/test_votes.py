"""A practice run keeps what is confirmed, whatever its merge model answers."""

import json
from pathlib import Path
from typing import Any

from grpo_practice.sim import stage_of
from tests.contract.endpoint.actions import completion
from tests.contract.project import Hook, served
from tests.run.project import Project

Said = tuple[int, dict[str, Any]]
KEPT = "Units: When units differ, convert them first."


def telling(**by_stage: object) -> Hook:
    """Answer stages of the teacher; the others as the simulation does."""

    def hook(n: int, body: dict[str, Any]) -> Said | None:
        stage = stage_of(body)
        return (200, completion(json.dumps(by_stage[stage]))) if stage in by_stage else None

    return hook


async def practised(project: Project, hook: Hook, *overrides: str) -> list[str]:
    async with served(hook) as endpoint:
        report = await project.practise(endpoint.override(), *overrides)
    return [e.text for e in report.library.experiences]


NEW = {"lessons": [{"lesson": "When a, do b."}]}
CONFIRMED = {
    "lessons": [
        {"lesson": "When units differ, convert.", "experience": "E1", "finding": "confirmed"},
        {"lesson": "When a, do b."},
    ]
}
ADDS = {"operations": [{"op": "ADD", "text": "B: When a, do b."}]}


def merging(*operations: dict[str, object]) -> dict[str, object]:
    return {"operations": list(operations)}


async def test_a_merge_cannot_remove_what_is_confirmed(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    made = merging({"op": "ADD", "text": KEPT, "from": ["P1"]})
    first = telling(compare=NEW, propose=ADDS, merge=made)
    assert await practised(project, first, "practice.epochs=1") == [KEPT]
    gone = merging({"op": "DELETE", "id": "E1", "from": ["P1"]})
    then = telling(compare=CONFIRMED, propose=ADDS, merge=gone)
    assert await practised(project, then, "practice.epochs=2") == [KEPT]
    refused = project.query(
        "SELECT rule, reason FROM operations WHERE source = 'merge' AND op = 'DELETE'"
    )
    assert {rule for rule, _ in refused} == {"outvoted"}
    assert "for it, 0 against it" in refused[0][1]


async def test_a_library_does_not_outgrow_its_size(tmp_path: Path, monkeypatch: Any) -> None:
    """A removal that is refused makes no room."""
    project = Project(tmp_path / "p")
    monkeypatch.setattr("grpo_practice.practice.merge.LIBRARY_SIZE", 1)
    made = merging({"op": "ADD", "text": KEPT, "from": ["P1"]})
    await practised(project, telling(compare=NEW, propose=ADDS, merge=made), "practice.epochs=1")
    more = merging(
        {"op": "DELETE", "id": "E1", "from": ["P1"]}, {"op": "ADD", "text": "B: When a, do b."}
    )
    then = telling(compare=CONFIRMED, propose=ADDS, merge=more)
    assert await practised(project, then, "practice.epochs=2") == [KEPT]
    rules = project.query(
        "SELECT DISTINCT rule FROM operations WHERE source = 'merge' AND step > 0"
    )
    assert {rule for (rule,) in rules} >= {"outvoted", "library_full"}
