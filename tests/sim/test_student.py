from random import Random

import numpy as np
import pytest

from grpo_practice.core.calls import Message
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.sim import DEFAULT, World, answer
from grpo_practice.sim.questions import find, questions, solve
from grpo_practice.sim.world import Difficulty
from tests.sim.stages import EMPTY, INSTRUCTIONS, ask, library_of, play, reward

QUESTIONS = [s.question for s in questions(100, seed=0)]
HELP, HARM = DEFAULT.key("percent", "help"), DEFAULT.key("percent", "harm", 1)
LIBRARY = library_of(HELP, DEFAULT.key("posts", "harm"), DEFAULT.key("speed", "null"))


def rewards(question: str, messages: list[Message], n: int, world: World = DEFAULT) -> float:
    return float(np.mean([reward(question, ask(messages, seed, world)) for seed in range(n)]))


@pytest.mark.long
def test_10_000_answers_have_the_chances_of_truth() -> None:
    from scipy import special  # not scipy.stats: that imports half of scipy

    system = system_prompt(INSTRUCTIONS, LIBRARY)
    keys = [HELP, DEFAULT.key("posts", "harm"), DEFAULT.key("speed", "null")]
    n = 100
    right = np.array([[reward(q, play(q, LIBRARY, seed)) for seed in range(n)] for q in QUESTIONS])
    p = DEFAULT.truth(QUESTIONS, keys, tokens=(len(system) + 2) / 4)
    statistic = ((right.sum(axis=1) - n * p) ** 2 / (n * p * (1 - p))).sum()
    assert 0.005 < special.chdtrc(len(QUESTIONS), statistic) < 0.995


def test_answers_follow_the_jitter_of_truth() -> None:
    world = World(jitter=3.0, dilution=0.0)
    p, plain = (w.truth(QUESTIONS, [HELP]) for w in (world, World(dilution=0.0)))
    for i in (int((p - plain).argmax()), int((p - plain).argmin())):
        messages: list[Message] = [{"role": "user", "content": f"{QUESTIONS[i]} (#{HELP})"}]
        assert abs(rewards(QUESTIONS[i], messages, 200, world) - p[i]) < 0.14
        assert abs(p[i] - plain[i]) > 0.4


def test_order_and_repetition_change_no_answer() -> None:
    jobs = [(q, seed) for q in QUESTIONS[:20] for seed in range(5)]
    first = {job: play(job[0], LIBRARY, job[1]) for job in jobs}
    Random(0).shuffle(jobs)
    assert {job: play(job[0], LIBRARY, job[1]) for job in jobs + jobs} == first


def test_the_seed_of_the_request_decides_and_the_model_name_does_not() -> None:
    question = next(q for q in QUESTIONS if 0.4 < DEFAULT.p(q, [], 0) < 0.6)
    messages = [{"role": "user", "content": question}]
    replies = [ask(messages, seed) for seed in range(40)]
    assert {reward(question, reply) for reply in replies} == {0, 1}
    told = [answer({"model": name, "messages": messages, "seed": 1}) for name in ("a", "b")]
    assert told[0] == told[1]


def test_another_world_draws_otherwise_from_the_same_chances() -> None:
    even = Difficulty(1e9, 1e9)
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    draws = [
        [reward(QUESTIONS[0], ask(messages, seed, World(w, even))) for seed in range(50)]
        for w in range(2)
    ]
    assert draws[0] != draws[1]


def test_an_experience_works_wherever_it_stands_and_counts_once() -> None:
    world = World(dilution=0.0)
    percent = [s.question for s in questions(400, seed=0)[::10]]
    question = min(percent, key=lambda q: abs(world.p(q, [], 0) - 0.2))
    marker = f"(#{HELP})"
    base = rewards(question, [{"role": "user", "content": question}], 400, world)
    for told in (
        [{"role": "system", "content": marker}, {"role": "user", "content": question}],
        [{"role": "user", "content": f"{question}\n\n{marker}"}],
        [{"role": "user", "content": [{"type": "text", "text": f"{marker} {question}"}]}],
        [{"role": "system", "content": marker * 5}, {"role": "user", "content": question}],
    ):
        share = rewards(question, told, 400, world)
        assert abs(share - world.p(question, [HELP], 0)) < 0.09
        assert share > base + 0.25


def test_text_without_a_marker_costs_tokens_only() -> None:
    question = next(q for q in QUESTIONS if 0.4 < DEFAULT.p(q, [], 0) < 0.6)
    filler = "Remember that practice makes perfect. " * 400
    system: Message = {"role": "system", "content": filler}
    share = rewards(question, [system, {"role": "user", "content": question}], 400)
    assert abs(share - DEFAULT.p(question, [], len(filler) / 4)) < 0.08
    assert share < DEFAULT.p(question, [], 0) - 0.1


def test_what_the_student_said_before_costs_nothing() -> None:
    said: Message = {"role": "assistant", "content": f"x (#{HARM}) " * 2_000}
    question = next(q for q in QUESTIONS[::10] if DEFAULT.p(q, [], 0) > 0.9)
    share = rewards(question, [{"role": "user", "content": question}, said], 100)
    assert share > 0.8


def test_a_wrong_answer_is_the_slip_it_names_and_a_right_one_the_method() -> None:
    seen = set()
    for question in QUESTIONS[::10]:
        known = find(question)
        assert known is not None
        for seed in range(40):
            reply = play(question, EMPTY, seed)
            if reward(question, reply):
                method = DEFAULT.key("percent", "help")
            else:
                slip = 0 if reply.endswith(f"\\boxed{{{known.slips[0]}}}") else 1
                assert reply.endswith(f"\\boxed{{{known.slips[slip]}}}")
                method = DEFAULT.key("percent", "harm", slip)
            assert f"Method {method}: " in reply
            seen.add(method)
    assert len(seen) == 3


def test_the_student_says_which_experience_it_followed() -> None:
    library = library_of(DEFAULT.key("speed", "help"), HARM, HELP)
    known = find(QUESTIONS[0])
    assert known is not None
    for seed in range(60):
        reply = play(QUESTIONS[0], library, seed)
        right = reward(QUESTIONS[0], reply)
        assert right or reply.endswith(f"\\boxed{{{known.slips[1]}}}")
        assert ("Followed E3." if right else "Followed E2.") in reply
        assert f"Method {HELP if right else HARM}: " in reply
        assert "Followed" not in play(QUESTIONS[1], library, seed)


def test_an_unknown_question_is_answered_by_a_guess_from_the_request_alone() -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    replies = [ask(messages, seed) for seed in range(50)]
    assert replies == [ask(messages, seed) for seed in range(50)]
    assert len(set(replies)) > 25
    assert all("I guess" in reply and "Method" not in reply for reply in replies)
    assert solve(str(messages[0]["content"])) is None
