"""The simulated teacher reads all that the shipped prompts show it."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from grpo_practice.core.prompts.system import experience_lines
from grpo_practice.core.types import Library
from grpo_practice.sim import DEFAULT, stage_of, teacher_prompts
from grpo_practice.sim.questions import questions, solve
from grpo_practice.sim.request import read
from tests.fakes import FENCES
from tests.sim.stages import GOALS, PROMPTS, library_of, play, reward, summarise, transcript_text


def test_every_attempt_is_read_with_its_reward() -> None:
    library, read_so = library_of(DEFAULT.key("percent", "help")), set[Any]()
    for sample, whole in product(questions(30, 3), (False, True)):
        slots, expected = shown(sample.question, library, whole=whole)
        body = {"messages": PROMPTS["compare"].render(FENCES, **slots)}
        assert stage_of(body) == "compare"
        found = [w for w in teacher_prompts.witnesses(read(body)) if w.method]
        assert [(w.reward, w.method, w.followed, w.answer) for w in found] == expected
        read_so |= {tuple(w.followed) for w in found}
    assert read_so == {(), ("E1",)}


def shown(
    question: str, library: Library, *, whole: bool
) -> tuple[Mapping[str, object], list[tuple[float, str, frozenset[str], str]]]:
    """What a comparison is told, and what each attempt should be read as."""
    attempts, expected = [], []
    for number in range(1, 6):
        reply = play(question, library, seed=number)
        messages = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": reply},
        ]
        text = transcript_text(messages) if whole else summarise(question, reply, library)
        right = reward(question, reply)
        attempts.append(
            {
                "number": number,
                "shown": "E1",
                "kind": "attempt" if whole else "summary",
                "text": text,
                "summary": text,
                "reward": f"{right}",
                "rank": 1,
                "judgement": None,
            }
        )
        method = next(line for line in reply.splitlines() if line.startswith("Method"))
        followed = frozenset({"E1"} if "Followed E1." in reply else ())
        answer = reply.rpartition("{")[2].rstrip("}")
        expected.append((float(right), method.split()[1].rstrip(":"), followed, answer))
    slots = {
        **GOALS,
        "question": question,
        "answer": solve(question),
        "experiences": experience_lines(library),
        "attempts": attempts,
        "truth": True,
        "limit": 2,
        "instructions": "",
    }
    return slots, expected


def test_an_attempt_alone_is_summarised_and_played_by_nobody() -> None:
    library = library_of(DEFAULT.key("percent", "help"))
    for seed, sample in enumerate(questions(20, 3)):
        reply = play(sample.question, library, seed)
        messages = PROMPTS["summarise"].render(
            FENCES,
            **GOALS,
            question=sample.question,
            answer=sample.answer,
            critique="expected 25",
            reward="1",
            words=300,
            experiences=experience_lines(library),
            transcript=transcript_text([{"role": "assistant", "content": reply}]),
        )
        assert stage_of({"messages": messages}) == "summarise"
        (told,) = teacher_prompts.witnesses(read({"messages": messages}))
        assert f"Method {told.method}: {told.do}." in reply
        assert told.answer is not None
        assert f"{{{told.answer}}}" in reply


@pytest.mark.parametrize(
    "system",
    [
        "Solve it. Reply with a box. Earlier scores: 3, 5.",
        "An attempt 1 has a reward of 1, an attempt 2 a reward of 0: do well.",
        'Experiences:\n[E1] Sum: When adding, add. (#percent-b6)\n"lessons" of the past count.',
        "Reply with <lessons> where you can, else ADD P1.",
    ],
)
def test_a_question_is_played_whatever_the_agent_is_told(system: str) -> None:
    question = questions(1, 0)[0].question
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    assert stage_of({"messages": messages}) == "play"
    messages = [{"role": "user", "content": f"{system}\n\n{question}"}]
    assert stage_of({"messages": messages}) == "play"
