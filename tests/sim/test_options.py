"""Multiple choice: the simulated student answers with a letter of the options it is shown."""

import json
import re
from pathlib import Path

import pytest

from grpo_practice.main import run
from grpo_practice.sim import World
from grpo_practice.sim.questions import Task, find, questions
from grpo_practice.sim.student import options_in
from tests.sim.agents import play as play_with
from tests.sim.agents import run_code
from tests.sim.stages import EMPTY, play

SUMS = [sample.question for sample in questions(40, seed=3)]


def boxed(reply: str) -> str:
    return reply.rpartition("\\boxed{")[2].rstrip("}")


def with_options(question: str) -> tuple[str, dict[str, str]]:
    """Show four options, the third of which is right; return the question and them."""
    found = find(question)
    assert found is not None
    texts = [str(found.slips[0]), "no such number", str(found.answer), str(found.slips[1])]
    options = dict(zip("ABCD", texts, strict=True))
    return f"{question}\n\n" + "\n".join(f"{k}. {v}" for k, v in options.items()), options


@pytest.mark.long
@pytest.mark.parametrize("task", ["math", "tools"])
def test_a_question_with_options_is_answered_by_the_letter_of_what_was_worked_out(
    task: Task,
) -> None:
    seen = set[str]()
    for question in SUMS:
        shown, options = with_options(question)
        for seed in range(4):
            if task == "tools":
                played = play_with(
                    shown, {"execute_python_code": run_code}, seed=seed, world=World(task=task)
                )
                reply, said = played.answer, r"stay with (-?\d+)"
            else:
                reply, said = play(shown, EMPTY, seed), r"That gives (-?\d+)"
            value = re.findall(said, reply)[-1]
            assert options[boxed(reply)] == value, reply
            seen.add(boxed(reply))
    assert seen == set("ACD")


@pytest.mark.parametrize("tool", ["execute_python_code", "search"])
def test_a_program_or_a_search_leads_to_a_letter_too(tool: str) -> None:
    tools = {"execute_python_code": run_code, "search": lambda query: f"nothing about {query}"}
    for question in SUMS:
        shown, options = with_options(question)
        reply = play_with(shown, {tool: tools[tool]}).answer
        assert boxed(reply) in options, reply


def test_an_answer_that_is_no_option_is_another_letter_than_the_right_one() -> None:
    for question in SUMS:
        found = find(question)
        assert found is not None
        shown = f"{question}\n(A) {found.answer} apples (B) one more (C) all of them"
        for seed in range(8):
            reply = play(shown, EMPTY, seed)
            right = f"That gives {found.answer}." in reply
            assert (boxed(reply) == "A") is right, reply


def test_a_foreign_question_is_guessed_at_among_its_options() -> None:
    shown = "Which is the capital of Australia?\n\nA. Sydney\nB. Canberra\nC. Perth"
    assert {boxed(play(shown, EMPTY, seed)) for seed in range(40)} == {"A", "B", "C"}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Q?\n\nA. 1\nB. 2", {"A": "1", "B": "2"}),
        ("Q?\nA) one\nB) two\nC) three", {"A": "one", "B": "two", "C": "three"}),
        ("Choose: (A) one (B) two", {"A": "one", "B": "two"}),
        ("A. 1\nB. 2\n\nA. 3\nB. 4", {"A": "3", "B": "4"}),
        ("A. Smith went home. How far is it?", {}),
        ("A. 1", {}),
        ("B. 1\nC. 2", {}),
        ("How many legs have A and B?", {}),
        ("", {}),
    ],
)
def test_options_are_two_or_more_letters_from_a_on(text: str, options: dict[str, str]) -> None:
    assert options_in(text) == options


def test_no_question_of_the_world_shows_options() -> None:
    for task in ("math", "labels"):
        samples = questions(300, seed=1, task="labels" if task == "labels" else "math")
        assert [s.question for s in samples if options_in(s.question)] == []


def test_multiple_choice_can_be_tried_from_upload_to_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UTU_LLM_MODEL", "sim")
    rows = []
    for question in SUMS[:12]:
        found = find(question)
        assert found is not None
        choices = [str(found.slips[0]), str(found.answer), "none of them"]
        rows.append({"question": question, "choices": choices, "answer": 1})
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert run(["init", "project"]) == 0
    assert run(["data", "upload", "mine.jsonl", "--name", "mc", "--verify", "choice"]) == 0
    capsys.readouterr()
    sets = ["--set", "data.dataset=mc", "--set", "verify=choice"]
    assert run(["eval", "--config", "project/practice.yaml", "--json", *sets]) == 0
    report = json.loads(capsys.readouterr().out)
    assert 0 < report["score"]["mean"] < 1
