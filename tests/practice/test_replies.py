"""What a teacher says becomes typed values, or is asked for again; nothing vanishes in silence."""

import json
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ReplyError
from grpo_practice.core.types import Experience, Library, Operation
from grpo_practice.practice.merge import apply
from grpo_practice.practice.replies import (
    EXPERIENCE_CHARS,
    LESSON_CHARS,
    LIBRARY_SIZE,
    read_lessons,
    read_operations,
    read_summary,
)
from grpo_practice.practice.reply_json import REPAIR_BRACKETS, REPAIR_CHARS

LIBRARY = Library((Experience(3, "Units: check them."), Experience(7, "Sign: mind it.")), 9)


def reply(text: str) -> Reply:
    return Reply({"role": "assistant", "content": text}, call_id=5)


def operations(*items: dict[str, object], limit: int = 10, proposals: int = 4) -> list[Operation]:
    text = json.dumps({"operations": items})
    return list(read_operations(reply(text), LIBRARY, limit=limit, proposals=proposals))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"lessons": [{"lesson": "When a, do b."}]}', id="bare"),
        pytest.param(
            'Sure!\n```json\n{"lessons": [{"lesson": "When a, do b."}]}\n```\nDone.', id="60-fenced"
        ),
        pytest.param(
            'First {"lessons": []}, no: {"lessons": [{"lesson": "When a, do b."}]}', id="last wins"
        ),
        pytest.param('{"lessons": [{"lesson": "When a, do b.",},],}', id="60-trailing comma"),
        pytest.param(
            '<think>{"lessons": []}</think>{"lessons": [{"lesson": "When  a,\\n do b."}]}',
            id="thinking is not the reply",
        ),
        pytest.param('{x} {"lessons": [{"lesson": "When a, do b."}]} {', id="stray braces"),
    ],
)
def test_lessons_are_found_in(text: str) -> None:
    (lesson,) = read_lessons(reply(text), LIBRARY, limit=2)
    assert (lesson.text, lesson.call_id) == ("When a, do b.", 5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("The better attempts were more careful.", "no JSON object"),
        ('{"lesson": "x"}', "no JSON object"),
        ('{"lessons": "x"}', "lessons"),
        ('{"lessons": [{"lesson": ""}]}', r"lessons\.0\.lesson"),
        ('{"lessons": [{"lesson": 3}]}', r"lessons\.0\.lesson"),
        ('{"lessons": [{"lesson": " \\n\u2003"}]}', r"lessons\.0\.lesson"),
        ("{" * 5000, "no JSON object"),
    ],
)
def test_1_60_what_cannot_be_read_is_asked_for_again(text: str, why: str) -> None:
    with pytest.raises(ReplyError, match=why):
        read_lessons(reply(text), LIBRARY, limit=2)


def test_an_empty_summary_is_asked_for_again() -> None:
    with pytest.raises(ReplyError, match="empty"):
        read_summary(reply(" \n<think>x</think>"))


def test_no_more_lessons_than_asked_for() -> None:
    text = json.dumps({"lessons": [{"lesson": f"l{i}"} for i in range(9)]})
    assert [x.text for x in read_lessons(reply(text), LIBRARY, limit=2)] == ["l0", "l1"]


def test_of_too_many_lessons_those_about_the_question_are_kept_in_the_teachers_order() -> None:
    lessons = [
        "Always read the text twice.",
        "When a fee is charged once, add it last.",
        "Stay calm.",
        "When a rate per hour is given, multiply it by the hours.",
    ]
    text = json.dumps({"lessons": [{"lesson": lesson} for lesson in lessons]})
    question = "A plumber charges a fee of 40 once and a rate of 25 per hour. What do 3 hours cost?"
    for limit, kept in ((1, [3]), (2, [1, 3]), (4, [0, 1, 2, 3])):
        found = read_lessons(reply(text), LIBRARY, limit=limit, question=question)
        assert [x.text for x in found] == [lessons[n] for n in kept]


def test_a_lesson_is_taken_whole_or_not_at_all() -> None:
    items = [
        {"lesson": "x" * (LESSON_CHARS + 1)},
        {"lesson": "y" * LESSON_CHARS},
        {"lesson": "z" * (LESSON_CHARS + 1), "experience": "E3"},
        {"lesson": "short"},
    ]
    found = read_lessons(reply(json.dumps({"lessons": items})), LIBRARY, limit=2)
    assert [x.text for x in found] == ["y" * LESSON_CHARS, "short"]


def test_a_lesson_about_an_experience_says_so() -> None:
    item = {"lesson": "When a, do b.", "experience": "E3", "problem": "misled"}
    (lesson,) = read_lessons(reply(json.dumps({"lessons": [item]})), LIBRARY, limit=1)
    assert (lesson.text, lesson.experience, lesson.finding) == ("When a, do b.", "E3", "misled")


def test_where_each_lesson_is_too_long_shorter_ones_are_asked_for() -> None:
    items = [{"lesson": "x" * (LESSON_CHARS + n)} for n in (1, 2)]
    with pytest.raises(ReplyError, match=r"lessons\.0\.lesson: it has 601 characters"):
        read_lessons(reply(json.dumps({"lessons": items})), LIBRARY, limit=2)


@pytest.mark.parametrize(
    ("item", "why", "rule"),
    [
        ({"op": "DELETE", "id": "E9"}, "E9 is not in the library", "unknown_id"),
        ({"op": "UPDATE", "text": "x"}, "no id is not in the library", "unknown_id"),
        ({"op": "ADD"}, "no text", "no_text"),
        ({"op": "ADD", "text": "  "}, "no text", "no_text"),
        ({"op": "UPDATE", "id": "E9"}, "no text", "no_text"),
        ({"op": "ADD", "text": "x" * 501}, "501 characters", "too_long"),
        ({"op": "ADD", "text": "Units:  check them."}, "says exactly this already", "duplicate"),
    ],
)
def test_1_60_an_operation_that_cannot_be_taken_is_kept_with_the_reason(
    item: dict[str, object], why: str, rule: str
) -> None:
    (op,) = operations(item)
    assert why in (op.refused or "")
    assert op.rule == rule


def test_1_60_an_unknown_kind_is_asked_for_again() -> None:
    with pytest.raises(ReplyError, match=r"operations\.0\.op"):
        operations({"op": "REPLACE", "text": "x"})


def test_1_60_ten_thousand_operations_are_capped() -> None:
    ops = operations(*[dict[str, object](op="ADD", text=f"t{i}") for i in range(10_000)], limit=3)
    assert sum(op.refused is None for op in ops) == 3
    assert (ops[3].refused, ops[3].rule) == ("more than 3 operations", "beyond_limit")


def test_a_full_library_grows_only_where_something_goes() -> None:
    full = Library(tuple(Experience(i, f"N: {i}.") for i in range(1, LIBRARY_SIZE + 1)), 900)
    items = [
        {"op": "ADD", "text": "N: too many."},
        {"op": "UPDATE", "id": "E2", "text": "N: changed."},
        {"op": "DELETE", "id": "E1"},
        {"op": "ADD", "text": "N: in its place."},
        {"op": "ADD", "text": "N: too many again."},
    ]
    ops = read_operations(reply(json.dumps({"operations": items})), full, limit=9)
    why = f"the library is full ({LIBRARY_SIZE} experiences)"
    assert [op.refused for op in ops] == [why, None, None, None, why]
    assert [op.rule for op in ops] == ["library_full", None, None, None, "library_full"]
    assert not any(op.quarantined for op in ops)
    assert len(apply(full, ops)) == LIBRARY_SIZE


def test_1_60_a_refused_text_is_kept_in_part() -> None:
    (op,) = operations({"op": "ADD", "text": "x" * 1_000_000})
    assert op.refused == f"its text has 1000000 characters (at most {EXPERIENCE_CHARS})"
    assert op.text == "x" * EXPERIENCE_CHARS + " … [999,500 more characters]"


def test_one_operation_per_experience() -> None:
    first, second = operations(
        {"op": "DELETE", "id": "E3"}, {"op": "UPDATE", "id": "E3", "text": "x"}
    )
    assert (first.refused, first.rule) == (None, None)
    assert (second.refused, second.rule) == ("E3 has an operation already", "second_operation")


def test_a_confirmation_is_no_second_operation() -> None:
    ops = operations({"op": "NONE", "id": "E3"}, {"op": "DELETE", "id": "E3"})
    assert [(op.op, op.target, op.refused) for op in ops] == [
        ("NONE", "E3", None),
        ("DELETE", "E3", None),
    ]


def test_what_a_merged_operation_stands_for_is_kept() -> None:
    (op,) = operations({"op": "ADD", "text": "x", "from": ["P1", "P4", "P5", "Q", "P0"]})
    assert op.from_ops == (0, 3)


def test_labels_live_on_and_are_never_reused() -> None:
    after = apply(
        LIBRARY,
        operations(
            {"op": "DELETE", "id": "E7"},
            {"op": "ADD", "text": "new"},
            {"op": "UPDATE", "id": "E3", "text": "Units: always."},
            {"op": "DELETE", "id": "E8"},
            {"op": "NONE"},
        ),
    )
    assert after.experiences == (Experience(3, "Units: always."), Experience(9, "new"))
    assert after.next_label == 10


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ADD", "UPDATE", "DELETE", "NONE"]),
            st.integers(1, 12),
            st.text().filter(lambda t: "think>" not in t),
        )
    )
)
def test_any_list_of_operations_leaves_a_sound_library(raw: list[tuple[str, int, str]]) -> None:
    items: list[dict[str, object]] = [
        {"op": op, "id": f"E{n}", "text": text} for op, n, text in raw
    ]
    after = apply(LIBRARY, operations(*items))
    labels = [e.label for e in after.experiences]
    assert len(labels) == len(set(labels))
    assert all(label < after.next_label for label in labels)
    assert all(e.text and e.text == " ".join(e.text.split()) for e in after.experiences)


def test_1_45_a_lone_surrogate_inside_the_json_is_replaced() -> None:
    (op,) = read_operations(
        reply('{"operations": [{"op": "ADD", "text": "N: a \\ud800"}]}'), LIBRARY, limit=2
    )
    assert op.text == "N: a \ufffd"


HOSTILE: list[str | tuple[str, str, str]] = [
    "{",
    "[",
    '{"k":[',
    '{"',
    '{"lessons": ',
    '"lessons": [',
    "[{lesson ",
    "\\",
    "<lesson",
    "<lesson>",
    "<lessons>",
    '<lesson "',
    "<lesson a='",
    "<lesson>" + "<text>" * 50,
    "<lessons ",
    "< ",
    "**a",
    "&amp",
    "<thinking>",
    "<lesson " + '"a" ' * 30,
    '{"a":[' + "1," * 1000,
    ("<lesson><op>a</op>", "<text>", "</lesson>"),
    '{"a":[' + "1," * 24,
]


@pytest.mark.long_after(8)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_reply_of_one_piece_over_and_over_takes_no_square_of_its_length(
    hostile: str | tuple[str, str, str],
) -> None:
    before, piece, after = ("", hostile, "") if isinstance(hostile, str) else hostile

    def seconds(length: int) -> float:
        text = before + (piece * (1 + length // len(piece)))[:length] + after
        began = time.process_time()
        with suppress(ReplyError):
            read_lessons(reply(text), LIBRARY, limit=2)
        return time.process_time() - began

    assert seconds(400_000) < 32 * max(seconds(50_000), 0.05)  # 8 times, and not 64 times


def test_what_is_repaired_is_bounded_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library takes the square of the time for twice the braces."""
    given = list[str]()

    def loads(text: str) -> object:
        given.append(text)
        return {"lessons": ["x"]}

    monkeypatch.setattr("json_repair.loads", loads)
    small = [f'{{"lesson": "l{i}"' + "}," for i in range(REPAIR_BRACKETS - 1)]
    assert read_lessons(reply('{"lessons": [' + "".join(small)), LIBRARY, limit=2)
    for text in ('{"lessons": [' + "".join([*small, "{"]), '{"lessons": ["' + "x" * REPAIR_CHARS):
        with pytest.raises(ReplyError, match='its JSON with "lessons" cannot be read'):
            read_lessons(reply(text), LIBRARY, limit=2)
    assert len(given) == 1


def test_nothing_is_loaded_for_repairs_before_one_is_needed() -> None:
    code = "import sys, grpo_practice.practice.distil; print('json_repair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
