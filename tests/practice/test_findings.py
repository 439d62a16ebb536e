"""A comparison's findings become votes and proposals."""

import json

import pytest

from grpo_practice.practice.distil import distil
from tests.practice.test_distil import ADD, AT, GROUP, LIBRARY, Said, teacher


def lessons_of(*found: tuple[str, str | None, str | None]) -> str:
    return json.dumps(
        {
            "lessons": [
                {"lesson": text, "experience": about, "finding": finding}
                for text, about, finding in found
            ]
        }
    )


async def test_a_lesson_that_only_confirms_needs_no_proposal() -> None:
    said = Said(summarise="x", compare=lessons_of(("When a, do b.", "E4", "confirmed")))
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    (op,) = done.operations
    assert (op.op, op.target, op.finding, op.vote) == ("NONE", "E4", "confirmed", 1)
    assert said.prompts("propose") == []


async def test_a_confirmation_is_not_lost_where_proposing_fails() -> None:
    said = Said(
        summarise="x",
        compare=lessons_of(("When a, do b.", "E4", "confirmed"), ("When c, do d.", None, None)),
        propose="no",
    )
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert done.failed_kind == "unreadable"
    assert [(op.op, op.target) for op in done.operations] == [("NONE", "E4")]


async def test_confirmations_leave_room_for_what_is_new() -> None:
    said = Said(
        summarise="x",
        compare=lessons_of(
            ("When a, do b.", "E1", "confirmed"),
            ("When a, do b.", "E4", "confirmed"),
            ("When a, do b, too.", "E4", "confirmed"),
            *((f"When {n}, do it.", None, None) for n in range(3)),
        ),
        propose=ADD,
    )
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert [(x.experience, x.text) for x in done.lessons] == [
        ("E1", "When a, do b."),
        ("E4", "When a, do b."),
        (None, "When 0, do it."),
        (None, "When 1, do it."),
    ]


@pytest.mark.parametrize(
    ("findings", "operation", "found", "vote"),
    [
        (["misled"], {"op": "UPDATE", "id": "E4", "text": "x"}, "misled", -1),
        (["too_narrow"], {"op": "UPDATE", "id": "E4", "text": "x"}, "too_narrow", 1),
        (["misled", "unclear"], {"op": "UPDATE", "id": "E4", "text": "x"}, "misled", -1),
        (
            ["misled"],
            {"op": "UPDATE", "id": "E4", "text": "x", "finding": "unclear"},
            "misled",
            -1,
        ),
        ([None], {"op": "UPDATE", "id": "E4", "text": "x", "finding": "unclear"}, "unclear", 1),
        ([None], {"op": "UPDATE", "id": "E4", "text": "x"}, None, -1),
        (["unclear"], {"op": "DELETE", "id": "E4"}, "misled", -1),
    ],
)
async def test_an_operation_carries_what_the_comparison_found(
    findings: list[str | None], operation: dict[str, str], found: str | None, vote: int
) -> None:
    lessons = lessons_of(*((f"When {n}, do it.", "E4", f) for n, f in enumerate(findings)))
    said = Said(summarise="x", compare=lessons, propose=json.dumps({"operations": [operation]}))
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    (op,) = done.operations
    assert (op.target, op.finding, op.vote) == ("E4", found, vote)


async def test_nothing_to_change_about_what_misled_is_no_confirmation() -> None:
    lessons = lessons_of(("When a, do b.", "E4", "misled"))
    none = json.dumps({"operations": [{"op": "NONE", "id": "E4"}]})
    done = await distil(
        teacher(Said(summarise="x", compare=lessons, propose=none)), GROUP, LIBRARY, AT
    )
    assert [(op.op, op.target) for op in done.operations] == [("NONE", None)]


async def test_a_proposal_of_what_the_library_says_word_for_word_confirms_it() -> None:
    said = Said(
        summarise="x",
        compare=lessons_of(("When a, do b.", None, None)),
        propose=json.dumps({"operations": [{"op": "ADD", "text": "Sums: add twice."}]}),
    )
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert [(op.op, op.target, op.refused) for op in done.operations] == [("NONE", "E4", None)]
