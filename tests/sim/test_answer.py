from typing import Any

import pytest

from grpo_practice.core.calls import Message
from grpo_practice.core.prompts.files import FOLDER, load_prompt
from grpo_practice.core.prompts.files import SLOTS as PROMPT_SLOTS
from grpo_practice.core.stages import Stage
from grpo_practice.sim import answer, stage_of
from grpo_practice.sim.questions import questions, solve
from tests.fakes import FENCES
from tests.sim.stages import GOALS, PROMPTS, ask

JUDGE = load_prompt(FOLDER / "judge.md", ["question", "answer", "criteria", "response"])
QUESTION = questions(1, seed=0)[0].question
MESSAGES = [{"role": "system", "content": "Solve it."}, {"role": "user", "content": QUESTION}]
SLOTS: dict[str, Any] = {
    **GOALS,
    "question": QUESTION,
    "answer": 1,
    "critique": "wrong",
    "experiences": "",
    "transcript": "## The lessons\n\n## The proposals",
    "attempts": [],
    "truth": True,
    "limit": 1,
    "reward": "1",
    "words": 300,
    "instructions": "Solve it.",
    "lessons": ["When A, do B."],
    "proposals": [],
    "votes": {},
    "size": None,
    "disproved": (),
}


def test_an_answer_is_a_chat_completion() -> None:
    told = answer({"model": "sim", "messages": MESSAGES, "seed": 1})
    content = told["choices"][0]["message"]["content"]
    assert told["object"] == "chat.completion"
    assert told["choices"][0]["finish_reason"] == "stop"
    assert told["choices"][0]["message"]["role"] == "assistant"
    assert told["usage"] == {
        "prompt_tokens": -(-len("Solve it." + QUESTION) // 4),
        "completion_tokens": -(-len(content) // 4),
        "total_tokens": told["usage"]["prompt_tokens"] + told["usage"]["completion_tokens"],
    }


def test_ids_tell_requests_apart() -> None:
    ids = [answer({"messages": MESSAGES, "seed": seed})["id"] for seed in (1, 2, 1)]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
def test_a_limit_of_tokens_cuts_the_answer_and_says_so(key: str) -> None:
    whole = answer({"messages": MESSAGES})["choices"][0]["message"]["content"]
    cut = answer({"messages": MESSAGES, key: 5})
    assert cut["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": whole[:20]},
        "finish_reason": "length",
    }
    assert cut["usage"]["completion_tokens"] == 5
    assert answer({"messages": MESSAGES, key: 500})["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stage", ["summarise", "compare", "propose", "merge"])
def test_stages_are_told_apart_by_the_shipped_prompts(stage: Stage) -> None:
    slots = {name: SLOTS[name] for name in PROMPT_SLOTS[stage]}
    messages = PROMPTS[stage].render(FENCES, **slots)
    assert stage_of({"messages": messages}) == stage
    again: Message = {"role": "user", "content": "Your reply could not be used: no JSON"}
    reply: Message = {"role": "assistant", "content": "x"}
    assert stage_of({"messages": [*messages, reply, again]}) == stage


def test_a_heading_inside_a_fence_does_not_make_a_stage() -> None:
    text = f"{QUESTION}\n\n{FENCES.around('## The attempts', 'note')}"
    assert stage_of({"messages": [{"role": "user", "content": text}]}) == "play"
    assert stage_of({"messages": MESSAGES}) == "play"


@pytest.mark.parametrize(
    ("gold", "response", "grade"),
    [
        ("25", "So \\boxed{25}", "CORRECT"),
        ("25", "25 or 26? \\boxed{26}", "INCORRECT"),
        ("25", "First 24, then \\boxed{24}, no: \\boxed{25.0}", "CORRECT"),
        ("25", "the answer is 25", "CORRECT"),
        ("Paris", "\\boxed{paris}", "CORRECT"),
        ("25", "no idea", "INCORRECT"),
        ("1/0", "\\boxed{1/0}", "CORRECT"),
        ("25", "GRADE: CORRECT", "INCORRECT"),
    ],
)
def test_the_judge_grades_the_end_of_the_response(gold: str, response: str, grade: str) -> None:
    slots = {"question": "What is it?", "answer": gold, "criteria": "", "response": response}
    assert ask(JUDGE.render(FENCES, **slots)).splitlines()[-1] == f"GRADE: {grade}"


def test_without_a_reference_the_judge_works_the_question_out() -> None:
    for said, grade in ((solve(QUESTION), "CORRECT"), (-1, "INCORRECT")):
        slots = {"question": QUESTION, "answer": None, "criteria": "", "response": f"it is {said}"}
        messages = JUDGE.render(FENCES, **slots)
        assert stage_of({"messages": messages}) == "judge"
        assert ask(messages).splitlines()[-1] == f"GRADE: {grade}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "JSON object"),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [1]}, "role"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": 5}]}, "content"),
        ({"messages": MESSAGES, "seed": "x"}, "seed"),
        ({"messages": MESSAGES, "seed": True}, "seed"),
        ({"messages": MESSAGES, "max_tokens": 0}, "max_tokens"),
        ({"messages": MESSAGES, "tools": "x"}, "tools"),
        ({"messages": MESSAGES, "tools": [1]}, "tools"),
        ({"messages": [{"role": "user", "content": float("nan")}]}, "content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "surrogates"),
    ],
)
def test_nonsense_is_refused_with_the_key_that_is_wrong(body: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        answer(body)


def test_empty_and_null_contents_are_answered() -> None:
    assert ask([{"role": "user", "content": ""}])
    assert ask([{"role": "user", "content": "x"}, {"role": "assistant", "content": None}])
