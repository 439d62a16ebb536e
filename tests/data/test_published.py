"""Rows in the shapes that datasets are published in: which turn is asked, which is the answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Sample
from grpo_practice.data.published_shapes import SHAPES
from grpo_practice.data.read import read_samples


def read(folder: Path, *rows: dict[str, Any], **how: Any) -> tuple[list[Sample], list[str]]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = read_samples(path, **how)
    return result.samples, result.notes


def messages(*turns: str) -> list[dict[str, str]]:
    """`user: text` and so on, as OpenAI writes it."""
    pairs = [turn.split(": ", 1) for turn in turns]
    return [{"role": role, "content": text} for role, text in pairs]


def shared(*turns: str) -> list[dict[str, str]]:
    """The same, as ShareGPT writes it."""
    return [{"from": m["role"], "value": m["content"]} for m in messages(*turns)]


HISTORY = "User: 2+2?\n\nAssistant: 4\n\nUser: Twice that?"

CASES: dict[str, tuple[str, dict[str, Any], Sample]] = {
    "alpaca": ("Alpaca", {"instruction": "Add.", "input": "2+2", "output": "4"},
               Sample("Add.\n\n2+2", "4")),
    "alpaca without input": ("Alpaca", {"instruction": "Add.", "input": "", "output": "4"},
                             Sample("Add.", "4")),
    "alpaca, two keys": ("Alpaca", {"instruction": "Add.", "output": 4, "id": 7},
                         Sample("Add.", 4, meta={"id": 7})),
    "alpaca with history": (
        "Alpaca", {"instruction": "Twice that?", "input": "", "output": "8", "system": "Be brief.",
                   "history": [["2+2?", "4"]]},
        Sample(HISTORY, "8", meta={"system": "Be brief."})),
    "sharegpt": ("a chat", {"conversations": shared("human: 2+2?", "gpt: 4")},
                 Sample("2+2?", "4")),
    "sharegpt beside messages": (
        "a chat",
        {"conversations": "x", "messages": messages("user: 2+2?", "assistant: 4")},
        Sample("2+2?", "4", meta={"conversations": "x"})),
    "sharegpt, several turns": (
        "a chat",
        {"id": "x", "conversations": shared("system: Be brief.", "human: 2+2?", "gpt: 4",
                                            "human: Twice that?", "gpt: 8")},
        Sample(HISTORY, "8", meta={"id": "x", "system": "Be brief."})),
    "sharegpt, left without an answer": (
        "a chat", {"conversations": shared("human: 2+2?", "gpt: 4", "human: Twice that?")},
        Sample(HISTORY, None)),
    "sharegpt with tools": (
        "a chat",
        {"conversations": shared("human: 2+2?", "function_call: add(2, 2)", "observation: 4",
                                 "gpt: It is 4.")},
        Sample("User: 2+2?\n\nAssistant: add(2, 2)\n\nTool: 4", "It is 4.")),
    "chat": ("a chat", {"messages": messages("system: S", "user: 2+2?", "assistant: 4")},
             Sample("2+2?", "4", meta={"system": "S"})),
    "chat, in parts": (
        "a chat",
        {"messages": [{"role": "developer", "content": "S"},
                      {"role": "user", "content": [{"type": "text", "text": "2+2"}, {"text": "?"}]},
                      {"role": "assistant", "content": "4", "name": None}]},
        Sample("2+2\n?", "4", meta={"system": "S"})),
    "chat with a call": (
        "a chat",
        {"messages": [
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "function": {"name": "add", "arguments": '{"a": 2}'}}]},
            {"role": "tool", "content": "4", "tool_call_id": "1"},
            {"role": "assistant", "content": "4"}]},
        Sample('User: 2+2?\n\nAssistant: (calls add with {"a": 2})\n\nTool: 4', "4")),
    "chat with the answer in a column": (
        "a chat", {"messages": messages("user: 2+2?"), "answer": 4}, Sample("2+2?", 4)),
    "chat in a cell": (
        "a chat", {"messages": json.dumps(messages("user: 2+2?", "assistant: 4"))},
        Sample("2+2?", "4")),
    "evals": ("OpenAI evals", {"input": messages("system: S", "user: 2+2?"), "ideal": "4"},
              Sample("S\n\n2+2?", "4")),
    "evals, alternatives": ("OpenAI evals", {"input": "2+2?", "ideal": ["4", "four"]},
                            Sample("2+2?", ["4", "four"])),
    "evals with examples": (
        "OpenAI evals",
        {"input": [{"role": "system", "content": "S"},
                   {"role": "system", "name": "example_user", "content": "2+2?"},
                   {"role": "system", "name": "example_assistant", "content": "4"},
                   {"role": "user", "content": "Twice that?"}], "ideal": "8"},
        Sample(f"S\n\n{HISTORY}", "8")),
    "trl": ("TRL prompt and completion", {"prompt": "2+2=", "completion": " 4"},
            Sample("2+2=", " 4")),
    "trl, turns": (
        "TRL prompt and completion",
        {"prompt": messages("system: S", "user: 2+2?"), "completion": messages("assistant: 4")},
        Sample("2+2?", "4", meta={"system": "S"})),
    "trl, good": ("TRL prompt and completion", {"prompt": "q", "completion": "4", "label": True},
                  Sample("q", "4", meta={"label": True})),
    "trl, bad": ("TRL prompt and completion", {"prompt": "q", "completion": "5", "label": False},
                 Sample("q", None, meta={"label": False, "rejected": "5"})),
    "preference": ("TRL preference", {"prompt": "q", "chosen": "4", "rejected": "5"},
                   Sample("q", "4", meta={"rejected": "5"})),
    "preference, turns": (
        "TRL preference",
        {"prompt": messages("user: q"), "chosen": messages("assistant: 4"),
         "rejected": messages("assistant: 5"), "score": 1.5},
        Sample("q", "4", meta={"score": 1.5, "rejected": "5"})),
    "preference without a prompt": (
        "TRL preference",
        {"chosen": messages("user: 2+2?", "assistant: 4", "user: Twice that?", "assistant: 8"),
         "rejected": messages("user: 2+2?", "assistant: 4", "user: Twice that?", "assistant: 9")},
        Sample(HISTORY, "8", meta={"rejected": "9"})),
    "verl": (
        "verl",
        {"data_source": "math_dapo", "prompt": messages("user: 2+2?"), "ability": "MATH",
         "reward_model": {"ground_truth": "4", "style": "rule"}, "extra_info": {"index": 1}},
        Sample("2+2?", "4", source="math_dapo", meta={
            "ability": "MATH", "extra_info": {"index": 1}, "reward_model": {"style": "rule"}})),
    "prompts with an answer": (
        "", {"prompt": messages("system: S", "user: 2+2?"), "answer": "4"},
        Sample("2+2?", "4", meta={"system": "S"})),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_row_of_each_shape_is_read_as_its_users_mean_it(tmp_path: Path, case: str) -> None:
    title, row, expected = CASES[case]
    samples, notes = read(tmp_path, row)
    assert samples == [expected]
    assert notes[0].startswith(f"read as {title}: the " if title else "the question is in 'prompt'")


@pytest.mark.parametrize(
    ("truth", "answer"),
    [
        ("34", "34"),
        (34, 34),
        ("", None),
        (["a", "b"], ["a", "b"]),
        ({"target": ["a", "b"]}, ["a", "b"]),
        ('{"ground_truth": "34"}', "34"),
        (json.dumps({"target": json.dumps(["a"])}), ["a"]),
        ('["34"]', ["34"]),
        ("[0, 1]", "[0, 1]"),
        ("[0, 1)", "[0, 1)"),
        ("{1, 2}", "{1, 2}"),
        ('{"inputs": ["1"], "outputs": ["2"]}', '{"inputs": ["1"], "outputs": ["2"]}'),
    ],
)
def test_a_nested_ground_truth_is_unpacked_and_an_interval_is_not(
    tmp_path: Path, truth: object, answer: object
) -> None:
    for model in ({"ground_truth": truth}, json.dumps({"ground_truth": truth})):
        (sample,), _ = read(tmp_path, {"prompt": messages("user: q"), "reward_model": model})
        assert sample.answer == answer
        assert sample.meta == {}


def test_a_table_may_hold_packed_conversations(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    turns = json.dumps(messages("user: q\t1", "assistant: 4")).replace('"', '""')
    path.write_text(f'id\tmessages\n1\t"{turns}"\n')
    assert read_samples(path).samples == [Sample("q\t1", "4", meta={"id": "1"})]


CHAT = {"messages": messages("user: q", "assistant: 4")}


@pytest.mark.parametrize(
    ("row", "said", "hint"),
    [
        (CHAT | {"problem": "p"}, "a chat and a table with the question in 'problem'",
         "--shape chat or --shape columns"),
        (CHAT | {"answer": "5"}, "from a chat or from 'answer'",
         "--shape chat or --map answer=answer"),
        (CHAT | {"prompt": "p", "chosen": "4", "rejected": "5"},
         "a chat and TRL preference", "--shape chat or --shape preference"),
        ({"prompt": "p", "completion": "c", "label": "good"}, "completion or from 'label'",
         "--shape trl or --map answer=label"),
        ({"input": "q", "ideal": "4", "question": "q"}, "in 'question'", "--shape evals"),
    ],
)  # fmt: skip
def test_what_may_be_two_things_is_an_error_that_says_how_to_choose(
    tmp_path: Path, row: dict[str, Any], said: str, hint: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, row)
    assert said in str(caught.value)
    assert "rows.jsonl:1: " in str(caught.value)
    assert hint in str(caught.value.hint)


def test_a_choice_ends_the_ambiguity_and_loses_nothing(tmp_path: Path) -> None:
    row = CHAT | {"problem": "p", "solution": "5"}
    samples, _ = read(tmp_path, row, shape="chat")
    assert samples == [Sample("q", "4", meta={"problem": "p", "solution": "5"})]
    samples, notes = read(tmp_path, row, shape="columns")
    assert samples == [Sample("p", "5", meta=CHAT)]
    assert notes[0].startswith("the question is in 'problem'")
    samples, _ = read(tmp_path, row, mapping={"question": "problem"})
    assert samples == [Sample("p", "5", meta=CHAT)]
    samples, notes = read(tmp_path, row, shape="chat", mapping={"answer": "solution"})
    assert samples == [Sample("q", "5", meta={"problem": "p", "response": "4"})]
    assert "but the answer is in 'solution'" in notes[0]


def test_a_shape_that_is_none_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--shape sharegpt is not one of alpaca, .*, columns"
    ) as e:
        read(tmp_path, CHAT, shape="sharegpt")
    assert e.value.hint == "chat also reads ShareGPT's conversations"
    with pytest.raises(ConfigError, match="both choose the question"):
        read(tmp_path, CHAT, shape="chat", mapping={"question": "messages"})
    for name in SHAPES:
        with pytest.raises(DataError, match=r"rows\.jsonl:1: '\w+' is missing"):
            read(tmp_path, {"x": 1}, shape=name)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"conversations": "none"}, "'conversations' is not a list of messages"),
        ({"conversations": []}, "'conversations' is empty"),
        ({"conversations": ["q"]}, "'conversations[0]' is not a message"),
        (
            {"conversations": shared("human: q", "alien: 4")},
            "'conversations[1]' has the unknown role",
        ),
        ({"conversations": shared("gpt: hi")}, "has no text from the user before the answer"),
        ({"conversations": shared("human:  ", "gpt: hi")}, "has no text from the user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type 'image_url'"),
        ({"messages": [{"role": "user", "content": 7}]}, "of type int, not text"),
        ({"instruction": " ", "output": "4"}, "'instruction' is empty"),
        ({"instruction": "q", "input": 4, "output": "4"}, "'input' is of type int"),
        ({"instruction": "q", "output": "4", "history": [["q"]]}, "'history' is not a list"),
        ({"input": "q", "ideal": {"a": 1}}, "the answer is an object"),
        ({"prompt": "", "completion": "4"}, "'prompt' is empty"),
        ({"prompt": "q", "completion": messages("user: 4")}, "the last turn of 'completion'"),
        ({"prompt": "q", "reward_model": 4}, "'reward_model' is not an object"),
        ({"prompt": "q", "reward_model": {"ground_truth": {"a": 1}}}, "without any of"),
    ],
)
def test_a_row_that_does_not_keep_to_its_shape_is_named_with_its_key(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, row)
    assert "rows.jsonl:1: " in str(caught.value)
    assert said in str(caught.value)


def test_later_rows_are_held_to_the_shape_of_the_first(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:2: 'messages' is missing"):
        read(tmp_path, CHAT, {"question": "q", "answer": "4"})
    samples, notes = read(tmp_path, CHAT, {"question": "q"}, skip_bad=True)
    assert len(samples) == 1
    assert "1 bad row left out" in notes[-1]


def test_the_answers_value_may_stand_after_hashes_in_a_shape_too(tmp_path: Path) -> None:
    row = {"messages": messages("user: q", "assistant: 2+2\n#### 4")}
    samples, notes = read(tmp_path, row)
    assert samples == [Sample("q", "4", meta={"solution": "2+2"})]
    assert "the answer's value is after '####'" in notes[0]


def test_several_turns_and_system_messages_are_said(tmp_path: Path) -> None:
    long = {"messages": messages("system: S", "user: a", "assistant: b", "user: c", "assistant: d")}
    _, notes = read(tmp_path, CHAT, long)
    assert any(note.startswith("1 of 2 rows whose question has several turns") for note in notes)
    assert any(note.startswith("1 of 2 rows with a system message") for note in notes)


def test_a_key_inside_an_object_can_be_mapped(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "a", "info": {"level": "easy", "at": {"url": "u"}}, "a.b": 1}
    how = {"level": "info.level", "meta.url": "info.at.url", "meta.b": "a.b"}
    samples, _ = read(tmp_path, row, row | {"info": None}, mapping=how)
    meta = {"url": "u", "b": 1, "info": row["info"]}
    assert samples[0] == Sample("q", "a", level="easy", meta=meta)
    assert samples[1] == Sample("q", "a", meta={"b": 1, "info": None})
    with pytest.raises(ConfigError, match=r"no 'info\.lvl'"):
        read(tmp_path, row, mapping={"level": "info.lvl"})


@pytest.mark.parametrize("deep", ["NaN", '{"a": 1, "a": 2}', "[" * 2_000])
def test_2_15_what_is_packed_into_a_text_is_as_strict_as_the_file(
    tmp_path: Path, deep: str
) -> None:
    model = f'{{"ground_truth": "4", "k": {deep}}}'
    with pytest.raises(DataError, match=r"rows\.jsonl:1: 'reward_model' is not an object"):
        read(tmp_path, {"prompt": messages("user: q"), "reward_model": model})


def test_2_15_lone_surrogates_in_what_is_packed_are_replaced_too(tmp_path: Path) -> None:
    model = r'{"ground_truth": "4\ud800", "k": "\ud800"}'
    samples, _ = read(tmp_path, {"prompt": messages("user: q"), "reward_model": model})
    assert samples == [Sample("q", "4\ufffd", meta={"reward_model": {"k": "\ufffd"}})]
