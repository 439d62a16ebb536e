"""Approved texts as edits of a library that has changed since they were held."""

import pytest

from grpo_practice.core.types import Experience, Library, Operation, OpKind
from grpo_practice.practice import approval
from grpo_practice.practice.approval import admitted, held_back
from grpo_practice.store.queries.held import Held

LIBRARY = Library((Experience(2, "A: do a."), Experience(5, "B: do b.")), 6)


def held(n: int, op: OpKind, text: str, target: str | None = None) -> Held:
    return Held(f"H{n}", 0, op, target, text, (), (), False)


def texts(library: Library) -> dict[str, str]:
    return {e.id: e.text for e in library.experiences}


def test_approved_texts_are_edits_of_the_library_as_it_is_now() -> None:
    found = admitted(LIBRARY, [held(1, "UPDATE", "B: do c.", "E5"), held(2, "ADD", "D: do d.")])
    assert texts(found.approvals.library) == {"E2": "A: do a.", "E5": "B: do c.", "E6": "D: do d."}
    assert [(a.held, a.edit.label) for a in found.approvals.approved] == [(1, 5), (2, 6)]
    assert found.refused == {}


def test_a_text_whose_experience_is_gone_is_added_under_a_new_label() -> None:
    found = admitted(LIBRARY, [held(1, "UPDATE", "C: do c.", "E3")])
    assert texts(found.approvals.library)["E6"] == "C: do c."


def test_what_the_library_says_already_is_not_taken() -> None:
    found = admitted(
        LIBRARY, [held(1, "ADD", "A: do a."), held(2, "ADD", "D: d."), held(3, "ADD", "D: d.")]
    )
    assert found.refused == {
        "H1": "E2 already says exactly this",
        "H3": "E6 already says exactly this",
    }
    assert [a.held for a in found.approvals.approved] == [2]


def test_a_full_library_takes_new_texts_of_what_it_has_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approval, "LIBRARY_SIZE", 2)
    found = admitted(LIBRARY, [held(1, "ADD", "C: do c."), held(2, "UPDATE", "B: do d.", "E5")])
    assert list(found.refused) == ["H1"]
    assert [a.held for a in found.approvals.approved] == [2]


def test_additions_and_new_texts_are_held_and_nothing_else() -> None:
    merged = [
        Operation("ADD", text="A: a."),
        Operation("UPDATE", "E1", "B: b."),
        Operation("DELETE", "E2"),
        Operation("NONE", "E3"),
        Operation("ADD", text="C: c.", refused="no", rule="outvoted"),
        Operation("ADD", text="D: d."),
    ]
    found = held_back(merged, {"D: d."})
    assert [op.rule for op in found] == ["held", "held", None, None, "outvoted", "duplicate"]
