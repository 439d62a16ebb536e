"""What is read of a rollout, by a teacher and by a person."""

import re
from typing import Any

import pytest

from grpo_practice.core.calls import Message
from grpo_practice.core.types import Outcome, Rollout, Sample, Trajectory
from grpo_practice.practice.transcript import (
    ANSWER,
    KEPT,
    Piece,
    Transcript,
    levels,
    sections,
    shorten,
    transcript_of,
)

Q = Sample("Q", "42", id=1)


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(content: object, **more: object) -> Message:
    return {"role": "assistant", "content": content, **more}


def tool(content: str) -> Message:
    return {"role": "tool", "tool_call_id": "c", "content": content}


def transcript(
    *messages: Message, response: str = "", outcome: Outcome = "ok", reason: str | None = None
) -> Transcript:
    played = Trajectory(outcome, response, messages, reason)
    return transcript_of(Rollout(0, 0, Q, played))


def read(
    *messages: Message, response: str = "", outcome: Outcome = "ok", reason: str | None = None
) -> str:
    return transcript(*messages, response=response, outcome=outcome, reason=reason).text


def test_tool_calls_and_their_results_are_told_in_their_place() -> None:
    code = '{"code": "x = 1\\nprint(x)", "timeout": 5}'
    calls = [call("run", code), call("find", "{broken"), call("n", {"a": 1})]
    text = read(
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        assistant(None, reasoning_content="let me see", tool_calls=calls),
        tool("1"),
        assistant([{"type": "text", "text": "42"}]),
        response="42",
    )
    assert text == (
        "[assistant]\n<think>\nlet me see\n</think>\n"
        "calls run(code=x = 1\nprint(x), timeout=5)\n"
        "calls find({broken)\ncalls n(a=1)\n\n"
        "[tool]\n1\n\n"
        "[assistant]\n42"
    )


def test_only_the_question_itself_is_left_out() -> None:
    """It stands in the prompt already; what an agent of one's own made of it does not."""
    user: Message = {"role": "user", "content": "Q, in steps"}
    assert read(user, assistant("42"), response="42") == "[user]\nQ, in steps\n\n[assistant]\n42"


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_thinking_is_told_apart_wherever_it_stands(key: str) -> None:
    told = "[assistant]\n<think>\nhm\n</think>\n42"
    assert read(assistant("42", **{key: "hm"}), response="42") == told
    assert read(assistant("<think>hm</think>42"), response="42") == told
    assert read(assistant("hm</think>42"), response="42") == told
    assert read(assistant("<think>hm"), outcome="truncated") == (
        "[assistant]\n<think>\nhm\n\n[the attempt ended here: it ran out of output tokens]"
    )


def test_odd_tool_calls_are_told_as_far_as_they_can_be() -> None:
    odd = assistant("", tool_calls=["x", {}])
    assert read(odd) == "[assistant]\ncalls a tool\ncalls a tool"


class TestTheAnswerThatWasScored:
    """It ends every transcript, once."""

    def test_of_an_agent_of_ones_own_it_is_added(self) -> None:
        said = assistant("The sum is 714.")
        end = f"[assistant]\nThe sum is 714.\n\n{ANSWER}\n7 14"
        assert read(said, response="7 14") == end

    def test_of_an_agent_that_asks_no_model_it_is_all_there_is(self) -> None:
        assert read(response="714") == f"{ANSWER}\n714"

    @pytest.mark.parametrize(
        "last",
        [
            assistant("714"),
            assistant("\n 714 \n"),
            assistant("<think>700 + 14</think>\n\n714"),
            assistant("700 + 14</think>714"),
            assistant([{"type": "text", "text": "714"}]),
        ],
    )
    def test_a_reply_that_is_the_answer_is_not_repeated(self, last: Message) -> None:
        assert ANSWER not in read(last, response="714")
        assert read(last, response="714").endswith("714")

    def test_a_result_that_is_the_answer_is_not_repeated(self) -> None:
        stopped = (assistant(None, tool_calls=[call("submit", "{}")]), tool("714"))
        assert read(*stopped, response="714").endswith("[tool]\n714")

    def test_an_earlier_reply_does_not_stand_for_it(self) -> None:
        text = read(assistant("714"), assistant("Or 715?"), response="714")
        assert text.endswith(f"Or 715?\n\n{ANSWER}\n714")

    def test_a_question_that_equals_it_does_not_stand_for_it(self) -> None:
        assert read({"role": "user", "content": "714"}, response="714").endswith(f"{ANSWER}\n714")

    def test_a_person_sees_the_same_and_the_question_too(self) -> None:
        messages: list[Message] = [{"role": "system", "content": "S"}, {"role": "user"}]
        found = sections(Trajectory("ok", "714", [*messages, assistant("7")]))
        headings = [section.heading for section in found]
        assert headings == ["[system]", "[user]", "[assistant]", ANSWER]
        assert found[-1].body == "714"


@pytest.mark.parametrize(
    ("outcome", "reason", "said"),
    [
        ("truncated", None, "it ran out of output tokens"),
        ("limit", "turns", "it ran out of turns"),
        ("limit", "time", "it ran out of time"),
        ("limit", "tokens", "it ran out of tokens"),
        ("limit", "cost", "it ran out of money"),
        ("limit", "naps", "it reached a limit"),
    ],
)
def test_an_attempt_that_was_cut_off_says_so(outcome: Outcome, reason: str, said: str) -> None:
    text = read(assistant("I st"), outcome=outcome, reason=reason)
    assert text == f"[assistant]\nI st\n\n[the attempt ended here: {said}]"


def test_what_is_cut_keeps_head_and_tail_and_says_how_much_is_gone() -> None:
    text = "".join(str(n % 10) for n in range(12_000))
    cut = shorten(text, 500)
    head, note, tail = cut.text.partition(f" … [{cut.cut:,} more characters were cut here] … ")
    assert note
    assert len(cut.text) == 500
    assert (text.startswith(head), text.endswith(tail)) == (True, True)
    assert len(head) + len(tail) + cut.cut == 12_000
    assert abs(len(head) - len(tail)) <= 1
    assert shorten("short", 0).text == "short"
    assert shorten(text, 3).text == " … [12,000 more characters were cut here] … "


def test_what_fits_is_whole() -> None:
    one = transcript(assistant("b" * 200_000), response="b" * 200_000)
    assert one.within(one.chars) == one.within(10**9)
    assert one.within(one.chars).cut == 0
    assert one.within(10).text == one.text  # an answer is never cut


def long_one() -> Transcript:
    """Each kind of piece, 10,000 characters of it and more."""
    messages: list[Message] = []
    for n in range(4):
        messages += [
            assistant(
                f"said {n} " + "s" * 10_000,
                reasoning_content=f"thought {n} " + "t" * 10_000,
                tool_calls=[call(f"tool{n}", "x" * 10_000)],
            ),
            tool(f"result {n} " + "r" * 10_000),
            {"role": "user", "content": f"told {n} " + "u" * 10_000},
        ]
    return transcript(
        *messages, assistant("The answer: " + "a" * 5_000), response="The answer: " + "a" * 5_000
    )


@pytest.mark.parametrize("kinds", range(1, 6))
def test_what_matters_less_is_cut_first(kinds: int) -> None:
    """Each kind is cut to the least before the next one is touched."""
    one = long_one()
    marks = {"thought": "t", "result": "r", "told": "u", "said": "s", "arguments": "x"}
    gone = 0
    for n, kind in enumerate(marks):
        pieces = 3 if kind == "result" else 4
        whole = sum(len(p.text) for p in one.pieces if p.kind == kind)
        if n < kinds:
            gone += whole - pieces * KEPT
    text = one.within(one.chars - gone).text
    for n, mark in enumerate(marks.values()):
        left = text.count(mark * 10_000)
        assert left == (4 if n >= kinds else 1 if mark == "r" else 0), mark
    assert len(text) <= one.chars - gone


def test_of_results_the_oldest_are_cut_first() -> None:
    messages: list[Message] = []
    for n in range(10):
        messages += [assistant(f"turn {n} " + "a" * 1_000), tool(str(n) * 16_000)]
    one = transcript(*messages, assistant("42"), response="42")
    text = one.within(120_000).text
    assert all(f"turn {n} " + "a" * 1_000 in text for n in range(10))
    whole = [n for n in range(10) if str(n) * 16_000 in text]
    assert whole == list(range(whole[0], 10))
    assert 0 < whole[0] < 5
    assert 119_000 < len(text) <= 120_000


def test_thinking_is_cut_all_alike() -> None:
    thoughts = [
        assistant("ok", reasoning_content=c * n)
        for c, n in zip("abc", (1_000, 9_000, 30_000), strict=True)
    ]
    text = transcript(*thoughts, response="ok").within(11_000).text
    assert "a" * 1_000 in text
    assert abs(text.count("b") - text.count("c")) < 10


def test_an_answer_that_was_cut_off_is_not_protected() -> None:
    """An endless repetition fills any budget; its beginning and its end say what it is."""
    endless = "again and " * 40_000
    one = transcript(assistant(endless), response=endless.strip(), outcome="truncated")
    text = one.within(10_000).text
    assert len(text) <= 10_000
    assert text.endswith("[the attempt ended here: it ran out of output tokens]")


def test_a_reasoning_run_of_400_000_characters_fits() -> None:
    """40 tools; the answer, the last result and all the calls are there."""
    messages: list[Message] = [{"role": "user", "content": "Q"}]
    for n in range(40):
        thought = f"thought {n}: " + "hm, let me see. " * 580
        calls = [call(f"look_up_{n}", f'{{"query": "page {n}"}}')]
        messages.append(assistant(None, reasoning_content=thought, tool_calls=calls))
        messages.append(tool(f"page {n} says: " + "word " * 150 + f"end {n}"))
    answer = "The answer is 42, since " + "it is. " * 100
    one = transcript(
        *messages, assistant(f"<think>{'so ' * 5_000}</think>{answer}"), response=answer.strip()
    )
    assert one.chars > 400_000
    fit = one.within(73_728)
    assert len(fit.text) <= 73_728
    assert len(fit.text) > 73_000
    assert fit.text.endswith(answer.strip())
    assert all(f"calls look_up_{n}(query=page {n})" in fit.text for n in range(40))
    assert all(f"page {n} says: " + "word " * 150 + f"end {n}" in fit.text for n in range(40))
    assert "more characters were cut here]" in fit.text
    small = one.within(30_000)
    assert len(small.text) <= 30_000
    assert small.text.endswith(answer.strip())
    assert all(f"calls look_up_{n}(query=page {n})" in small.text for n in range(40))
    assert "page 39 says: " + "word " * 150 + "end 39" in small.text
    assert "page 0 says: " + "word " * 150 not in small.text
    assert fit.cut == one.chars - len(fit.text) + notes(fit.text)


def notes(text: str) -> int:
    """Characters of the notes on what was cut."""
    return sum(map(len, re.findall(r" … \[[0-9,]+ more characters were cut here\] … ", text)))


def test_room_is_shared_out_so_that_the_short_are_whole() -> None:
    assert levels([10, 100, 1_000], 110) == [10, 50, 50]
    assert levels([10, 20, 30], 1_000) == [10, 20, 30]
    assert levels([100, 100], 50, [40, 0]) == [40, 10]
    assert levels([100, 100], 50, [90, 0]) == [90, 0]
    assert levels([], 50) == []


def test_a_summary_is_a_text_like_any_other() -> None:
    assert len(Transcript((Piece("said", "s" * 5_000),)).within(1_000).text) == 1_000
