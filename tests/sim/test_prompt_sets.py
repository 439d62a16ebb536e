"""Prompts of the user's own can be rehearsed: the simulation plays its part for any of them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from grpo_practice.prompts import FINAL, Prompt
from grpo_practice.prompts.system import experience_lines
from grpo_practice.sim import DEFAULT, World, material, stage_of
from grpo_practice.sim.questions import TOPICS, questions, solve
from grpo_practice.sim.request import read
from grpo_practice.sim.world import Teaching
from grpo_practice.types import Library
from tests.fakes import FENCES
from tests.sim.rehearsal import SETS, Rehearsal, prompts_of
from tests.sim.stages import GOALS, library_of, play, reward, summarise, transcript_text

NAMES = sorted(path.name for path in SETS.iterdir() if path.is_dir())
SOME = [*NAMES[:2], *(pytest.param(name, marks=pytest.mark.long) for name in NAMES[2:])]
SURE = World(teacher=Teaching(top=1.0, miss=0.0, blind=1.0))
"""A teacher that errs only where it cannot read what is shown."""
HARMFUL = library_of(*(DEFAULT.key(topic, "harm") for topic in TOPICS))


@cache
def practised(name: str, *, truth: bool = True, harmful: bool = False) -> Rehearsal:
    library = HARMFUL if harmful else Library()
    return Rehearsal(prompts_of(name), SURE, truth, library=library).practise()


def test_there_are_sets_of_every_sort() -> None:
    stages = {"summarise", "compare", "propose", "merge"}
    assert len(NAMES) >= 5
    assert all({path.stem for path in (SETS / name).iterdir()} == stages for name in NAMES)


@pytest.mark.parametrize("name", SOME)
def test_other_prompts_teach_as_much_as_the_shipped_ones(name: str) -> None:
    shipped, own = practised("shipped"), practised(name)
    assert set(own.taken_for) == {(stage, stage) for stage, _ in shipped.taken_for}
    assert not any(done.failed for done in own.distilled)
    assert own.kinds == shipped.kinds
    assert own.kinds["help"] >= 9
    assert own.gain() == shipped.gain() > 0.1


@pytest.mark.parametrize("name", SOME)
def test_with_other_prompts_what_is_harmful_gives_way(name: str) -> None:
    shipped, own = (practised(n, harmful=True) for n in ("shipped", name))
    assert sorted(own.keys) == sorted(shipped.keys)
    assert own.kinds["help"] >= 8
    assert own.library.experiences[0].id == "E1", "it was changed, not made anew"


@pytest.mark.parametrize("name", SOME)
def test_they_may_hide_which_attempts_are_right(name: str) -> None:
    own, shipped = practised(name, truth=False), practised("shipped", truth=False)
    assert sorted(own.keys) == sorted(shipped.keys)


@pytest.mark.parametrize("whole", [False, True], ids=["summaries", "transcripts"])
@pytest.mark.parametrize("name", ["shipped", *NAMES])
def test_every_attempt_is_read_with_its_reward(name: str, *, whole: bool) -> None:
    library, read_so = library_of(DEFAULT.key("percent", "help")), set[Any]()
    for sample in questions(30, 3):
        slots, expected = shown(sample.question, library, whole=whole)
        body = {"messages": prompts_of(name)["compare"].render(FENCES, **slots)}
        assert stage_of(body) == "compare"
        found = [w for w in material.witnesses(read(body)) if w.method]
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


@pytest.mark.parametrize("name", ["shipped", *NAMES])
def test_an_attempt_alone_is_summarised_and_played_by_nobody(name: str) -> None:
    library = library_of(DEFAULT.key("percent", "help"))
    for seed, sample in enumerate(questions(20, 3)):
        reply = play(sample.question, library, seed)
        prompt: Prompt = prompts_of(name)["summarise"]
        messages = prompt.render(
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
        told = material.witness(None, material.transcript(read({"messages": messages})))
        assert f"Method {told.method}: {told.do}." in reply
        assert told.answer is not None
        assert f"{{{told.answer}}}" in reply


def test_an_attempt_that_ran_out_of_turns_is_one_attempt() -> None:
    assert FINAL.startswith(material.OUT_OF_TURNS)
    turns = [("user", "Solve it."), ("assistant", "Step 1: look."), ("user", FINAL)]
    messages = [{"role": role, "content": text} for role, text in [*turns, ("assistant", "5")]]
    shown = f"What happened:\n\n{transcript_text(messages)}\n\nSum it up."
    assert stage_of({"messages": [{"role": "user", "content": shown}]}) == "summarise"


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
