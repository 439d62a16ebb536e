from typing import Any

import pytest

from grpo_practice.core.fences import web_fenced
from grpo_practice.core.prompts.files import FINAL, FOLDER, load_prompt
from grpo_practice.sim import DEFAULT, World, answer, stage_of
from grpo_practice.sim.questions import find, questions
from grpo_practice.sim.student import program
from grpo_practice.sim.world import Rule
from tests.fakes import FENCES
from tests.sim.agents import Tool, offered, play, run_code
from tests.sim.stages import EMPTY, INSTRUCTIONS, ask, library_of, reward
from tests.sim.stages import play as play_plainly

QUESTIONS = [s.question for s in questions(40, seed=0)]
PYTHON: dict[str, Tool] = {"execute_python_code": run_code}
WEB: dict[str, Tool] = {
    "search": lambda query: f"1. Sums (https://a.example/sums) for {query}\n2. https://b.example/.",
    "web_qa": lambda url, query: f"{url} says nothing about {query}",
}


def boxed(text: str) -> str:
    return text.rpartition("\\boxed{")[2].rstrip("}")


def test_every_program_prints_the_answer_it_stands_for() -> None:
    for sample in questions(2_000, seed=1):
        question = find(sample.question)
        assert question is not None
        for value in (question.answer, *question.slips):
            assert run_code(program(question, value)) == str(value), question


@pytest.mark.parametrize("tools", [PYTHON, WEB], ids=["python", "web"])
def test_with_tools_it_is_as_often_right_as_without(tools: dict[str, Any]) -> None:
    """On the very same requests: only the way to the answer is longer."""
    for question in QUESTIONS:
        for seed in range(5):
            played = play(question, tools, seed=seed, system=INSTRUCTIONS)
            plain = play_plainly(question, EMPTY, seed)
            assert boxed(played.answer) == boxed(plain)
            assert played.finishes == ["tool_calls"] * (len(played.finishes) - 1) + ["stop"]


def test_a_helpful_experience_helps_and_is_named() -> None:
    key = DEFAULT.key("percent", "help")
    library = library_of(key)
    system = f"{INSTRUCTIONS}\n\n[E1] {library.experiences[0].text}"
    runs = [play(q, PYTHON, seed=s, system=system) for q in QUESTIONS[::10] for s in range(10)]
    without = [play(q, PYTHON, seed=s) for q in QUESTIONS[::10] for s in range(10)]
    right = sum(reward(str(r.messages[1]["content"]), r.answer) for r in runs)
    assert right > sum(reward(str(r.messages[1]["content"]), r.answer) for r in without)
    first = "\n".join(str(r.messages[2]["content"]) for r in runs)
    assert "Followed E1." in first
    assert f"Method {key}: " in first


def test_what_the_program_prints_is_the_answer() -> None:
    tools = {"execute_python_code": lambda code: "Output:\n4711\n"}
    assert boxed(play(QUESTIONS[0], tools).answer) == "4711"


def test_a_program_that_failed_leaves_the_answer_it_had_in_mind() -> None:
    tools = {"execute_python_code": lambda code: "Error: stopped after 30 s"}
    for seed in range(5):
        played = play(QUESTIONS[0], tools, seed=seed, system=INSTRUCTIONS)
        assert boxed(played.answer) == boxed(play_plainly(QUESTIONS[0], EMPTY, seed))


def test_the_web_is_searched_for_the_question_then_a_page_is_read() -> None:
    played = play(QUESTIONS[0], WEB, parallel_tool_calls=False)
    assert played.calls == [
        ("search", {"query": QUESTIONS[0]}),
        ("web_qa", {"url": "https://a.example/sums", "query": QUESTIONS[0]}),
    ]


def test_without_a_link_no_page_is_read() -> None:
    tools: dict[str, Tool] = {**WEB, "search": lambda query: "Error: not enough credits"}
    assert set(play(QUESTIONS[0], tools).names) == {"search"}


def test_sometimes_a_turn_makes_two_calls_unless_that_is_not_wanted() -> None:
    counts = {
        parallel: [
            sum(len(m.get("tool_calls", ())) == 2 for m in played.messages)
            for played in (
                play(q, WEB, seed=seed, parallel_tool_calls=parallel)
                for q in QUESTIONS
                for seed in range(5)
            )
        ]
        for parallel in (True, False)
    }
    assert 0.15 < sum(counts[True]) / (2 * len(counts[True])) < 0.35
    assert not any(counts[False])
    calls = [m["tool_calls"] for m in play(QUESTIONS[0], WEB).messages if "tool_calls" in m]
    ids = [call["id"] for turn in calls for call in turn]
    assert len(set(ids)) == len(ids)


def test_a_question_that_is_not_of_this_world_is_looked_up_and_guessed() -> None:
    for tools, used in ((PYTHON, "execute_python_code"), (WEB, "search")):
        played = play("Who wrote 12 books in 3 years?", tools)
        assert used in played.names
        assert "I guess" in played.answer


def test_tools_it_does_not_know_are_never_called() -> None:
    body = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "seed": 1}
    plain = answer(body)
    assert answer({**body, "tools": offered("delete_everything")}) == plain
    assert answer({**body, "tools": offered("search"), "tool_choice": "none"}) == plain
    assert answer({**body, "tools": []}) == plain


def test_a_tool_it_is_told_to_call_is_called_once_with_what_it_is_told() -> None:
    told = "Call the tool `add` with a=2 and b=-2. Then call it a day."
    played = play(told, {"add": lambda a, b: str(a + b)})
    assert played.calls == [("add", {"a": 2, "b": -2})]
    assert play("Call the tool `ping`", {"ping": lambda: "pong"}).names == ["ping"]
    assert "tool_calls" not in play("Call the tool `add`.", {"other": lambda: ""}).messages[-1]


def test_asked_for_its_answer_without_tools_it_stays_with_its_way() -> None:
    world = World(rule=Rule(p_help=0.0, p_null=0.0))  # nobody knows a good method there
    for seed in range(10):
        whole = play(QUESTIONS[0], WEB, seed=seed, world=world)
        cut = [*whole.messages[:4], {"role": "user", "content": FINAL}]
        if len(whole.messages[2]["tool_calls"]) == 1:
            assert boxed(ask(cut, seed, world)) == boxed(whole.answer)


def test_where_its_first_turn_is_not_to_be_seen_it_tells_the_whole() -> None:
    played = play(QUESTIONS[0], PYTHON)
    messages = [
        {**m, "content": None} if m["role"] == "assistant" else m for m in played.messages[:-1]
    ]
    assert "Method " in ask(messages)


def test_the_same_request_has_the_same_turn() -> None:
    body = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "tools": offered("search")}
    assert answer(body) == answer(body)
    assert answer({**body, "seed": 1})["id"] != answer(body)["id"]


def test_calls_count_as_tokens_and_are_cut_whole() -> None:
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    body = {"messages": messages, "tools": offered("search"), "parallel_tool_calls": False}
    whole = answer(body)
    message = whole["choices"][0]["message"]
    arguments = message["tool_calls"][0]["function"]["arguments"]
    said = len(message["content"]) + len("search") + len(arguments)
    assert whole["usage"]["completion_tokens"] == -(-said // 4)
    after = [*messages, message]
    assert answer({"messages": after})["usage"]["prompt_tokens"] == (
        -(-(len(QUESTIONS[0]) + said) // 4)
    )
    cut = answer({**body, "max_tokens": 40})["choices"][0]
    assert cut["finish_reason"] == "length"
    assert cut["message"] == {"role": "assistant", "content": message["content"][:160]}


def test_a_page_is_read_for_what_was_asked() -> None:
    prompt = load_prompt(FOLDER / "web_qa.md", ["url", "query", "page", "label", "cut"])
    page = "Home\nThe river Ems is 371 km long.\nImprint"
    for query, told in (
        ("How long is the river Ems?", "The page says: The river Ems is 371 km long."),
        ("Quanto costa?", "The page does not answer the question."),
    ):
        slots = {"url": "https://a.example/", "query": query, "page": page, "cut": ""}
        messages = prompt.render(FENCES, **slots, label="web a.example")
        assert web_fenced(FENCES, page, "a.example") in messages[-1]["content"]
        assert stage_of({"messages": messages}) == "tool"
        assert ask(messages) == told
