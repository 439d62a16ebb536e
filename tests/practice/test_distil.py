"""What the teacher is shown, and what becomes of what it says."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.core.calls import Chat, Message, Reply, Scope
from grpo_practice.core.errors import (
    ConfigError,
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
)
from grpo_practice.core.prompts.files import SLOTS, compile_prompt, load_prompts
from grpo_practice.core.stages import distillation
from grpo_practice.core.types import (
    Distilled,
    Experience,
    Group,
    Library,
    Operation,
    Quarantine,
    Rollout,
    Sample,
    Trajectory,
    Verdict,
)
from grpo_practice.practice.distil import distil
from grpo_practice.practice.evidence import Change, Evidence
from grpo_practice.practice.merge import Proposal, changes, merge, votes
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.rollout.groups.informative import status_of
from tests.fakes import FENCES, FakeChat

GOLDEN = Path(__file__).parents[1] / "golden"
Q = Sample("How much is {{ 7*7 }} + 1? $x$ %s", ["50", 50], id=1)
LIBRARY = Library((Experience(1, "Units: name them."), Experience(4, "Sums: add twice.")), 5)


def rollout(attempt: int, reward: float | None, answer: str = "50", **played: object) -> Rollout:
    transcript: list[Message] = [
        {"role": "system", "content": "SECRET SYSTEM"},
        {"role": "user", "content": Q.question},
        {"role": "assistant", "content": f"It is {answer}.", "reasoning_content": "hm"},
    ]
    made = Trajectory("ok", f"It is {answer}.", transcript)
    verdict = None if reward is None else Verdict(reward, f"critique {attempt}", answer)
    return Rollout(0, attempt, Q, replace(made, **played), verdict)  # type: ignore[arg-type]


GROUP = Group(
    0, Q, [rollout(0, 0.0, "49"), rollout(1, 1.0), rollout(2, None), rollout(3, 0.5, "48")]
)


class Said:
    """A teacher that answers by stage; keeps the scopes and messages it was asked with."""

    def __init__(self, **by_stage: str | Exception | Callable[[int], str | Exception]) -> None:
        self.by_stage = by_stage
        self.asked: list[tuple[Scope, list[Message]]] = []

    def chat(self, scope: Scope) -> Chat:
        def answer(messages: list[Message]) -> str | Reply | Exception:
            self.asked.append((scope, messages))
            said = self.by_stage[scope.address.stage]
            return said(len(messages)) if callable(said) else said

        return FakeChat(answer)

    def prompts(self, stage: str) -> list[str]:
        return [
            "\n".join(str(m["content"]) for m in messages)
            for scope, messages in self.asked
            if scope.address.stage == stage
        ]


LESSON = json.dumps({"lessons": [{"lesson": "When a, do b."}]})
ADD = json.dumps({"operations": [{"op": "ADD", "text": "B: do b."}]})


PROMPTS = load_prompts()


def teacher(said: Said, *, truth: bool = True) -> Teacher:
    goals = ("Add numbers.", "Be exact.")
    return Teacher(said.chat, load_prompts(), *goals, truth, 2, 0, "Add it up.", fences=FENCES)


AT = GroupKey(1, 0, 0, 0)


async def test_a_group_becomes_lessons_and_operations() -> None:
    said = Said(summarise="did it", compare=LESSON, propose=ADD)
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert done.failed is None
    assert [x.text for x in done.lessons] == ["When a, do b."]
    assert [(op.op, op.text) for op in done.operations] == [("ADD", "B: do b.")]
    stages = [scope.address.stage for scope, _ in said.asked]
    assert stages == ["summarise"] * 3 + ["compare", "propose"]
    assert sorted(s.address.attempt for s, _ in said.asked if s.address.stage == "summarise") == [
        0,
        1,
        3,
    ]


async def test_the_comparison_sees_all_that_was_summarised_best_first() -> None:
    number = iter("abc")
    said = Said(summarise=lambda _: f"summary {next(number)}", compare=LESSON, propose=ADD)
    await distil(teacher(said), GROUP, LIBRARY, AT)
    (shown,) = said.prompts("compare")
    heads = [line for line in shown.splitlines() if line.startswith("### ")]
    assert heads == [
        "### Attempt 2: reward 1, rank 1 of 3",
        "### Attempt 4: reward 0.5, rank 2 of 3",
        "### Attempt 1: reward 0, rank 3 of 3",
    ]
    for part in ("summary a", "summary b", "summary c", "50 or 50", "[E4] Sums: add twice."):
        assert part in shown


async def test_what_an_id_stood_for_when_it_was_shown_is_not_taken_for_what_it_says_now() -> None:
    said = Said(summarise="It was done.", compare=LESSON, propose=ADD)
    now = Library(
        (Experience(1, "Units: name both."), Experience(5, "Ends: look."), LIBRARY.experiences[1]),
        6,
    )
    before = replace(LIBRARY, experiences=(*LIBRARY.experiences, Experience(3, "Old: forget.")))
    await distil(teacher(said), GROUP, now, AT, shown=lambda _: before)
    (shown,) = said.prompts("compare")
    assert shown.count("Experiences shown: E1 (reworded since), E4, E3 (removed since).") == 3
    (summarised, *_) = said.prompts("summarise")
    assert "[E1] Units: name them." in summarised


async def test_without_ground_truth_neither_answer_reward_nor_critique_is_shown() -> None:
    said = Said(summarise="did it", compare=LESSON, propose=ADD)
    await distil(teacher(said, truth=False), GROUP, LIBRARY, AT)
    told = "\n".join(p for s in ("summarise", "compare", "propose") for p in said.prompts(s))
    for hidden in ("50 or 50", "critique", "reward 1", "rank", "correct answer"):
        assert hidden not in told.replace("The correct answer", "correct answer"), hidden
    heads = [x for x in said.prompts("compare")[0].splitlines() if x.startswith("### ")]
    assert heads == ["### Attempt 1", "### Attempt 2", "### Attempt 4"]


async def test_without_ground_truth_a_prompt_of_ones_own_cannot_show_the_rewards() -> None:
    curious = PROMPTS["compare"].text.replace("{% if truth %}: reward", "{% if 1 %}: reward")
    prompts = {**PROMPTS, "compare": compile_prompt("compare", curious, SLOTS["compare"], where="")}
    said = Said(summarise="did it", compare=LESSON, propose=ADD)
    with pytest.raises(ConfigError, match=r"prompt 'compare' .* no attribute 'reward'"):
        await distil(replace(teacher(said, truth=False), prompts=prompts), GROUP, LIBRARY, AT)
    assert said.prompts("compare") == []
    await distil(replace(teacher(said), prompts=prompts), GROUP, LIBRARY, AT)
    assert "reward 0.5" in said.prompts("compare")[0]


async def test_a_summary_that_fails_lets_the_paid_ones_arrive_first() -> None:
    arrived: list[int] = []

    class Slow:
        def __init__(self, attempt: int) -> None:
            self.attempt = attempt

        async def __call__(self, *_: object, **__: object) -> Reply:
            if self.attempt != 3:
                raise EndpointError(f"HTTP 40{self.attempt}")
            for _turn in range(5):
                await asyncio.sleep(0)
            arrived.append(self.attempt)
            return Reply({"role": "assistant", "content": "did it"})

    slow = replace(teacher(Said()), chat=lambda scope: Slow(scope.address.attempt))
    done = await distil(slow, GROUP, LIBRARY, AT)
    assert done.failed == "EndpointError: HTTP 400"
    assert done.unread == ("EndpointError: HTTP 400", "EndpointError: HTTP 401")
    assert arrived == [3]


async def test_no_lesson_costs_no_proposal() -> None:
    said = Said(summarise="did it", compare='{"lessons": []}')
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert (done.lessons, done.operations, done.failed) == ((), (), None)


async def test_a_reply_that_cannot_be_read_is_asked_again_twice_with_the_error() -> None:
    said = Said(summarise="did it", compare="no idea", propose=ADD)
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert done.failed is not None
    assert "no JSON object" in done.failed
    assert (done.failed_kind, done.compared) == ("unreadable", False)
    assert [len(m) for s, m in said.asked if s.address.stage == "compare"] == [2, 4, 6]
    last = said.asked[-1][1]
    assert last[2] == {"role": "assistant", "content": "no idea"}
    assert 'no JSON object with "lessons"' in last[3]["content"]


async def test_a_reply_that_is_mended_is_taken() -> None:
    said = Said(summarise="s", compare=lambda n: "?" if n == 2 else LESSON, propose=ADD)
    assert (await distil(teacher(said), GROUP, LIBRARY, AT)).failed is None


async def test_lessons_stay_on_record_where_no_proposal_came_of_them() -> None:
    said = Said(summarise="s", compare=LESSON, propose="no idea")
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert (len(done.lessons), done.operations) == (1, ())
    assert (done.failed_kind, done.compared) == ("unreadable", True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointError("HTTP 500"), "provider"),
        (ContextOverflowError("too long"), "context_overflow"),
        (ContentFilterError("no"), "content_filter"),
    ],
)
async def test_a_failure_has_the_kind_of_its_error(error: EndpointError, kind: str) -> None:
    done = await distil(teacher(Said(summarise="s", compare=error)), GROUP, LIBRARY, AT)
    assert (done.failed_kind, done.compared) == (kind, False)


async def test_a_failing_teacher_fails_the_group_and_nothing_else() -> None:
    said = Said(summarise=EndpointError("HTTP 500"))
    done = await distil(teacher(said), GROUP, LIBRARY, AT)
    assert done.failed == "EndpointError: HTTP 500"


async def test_the_merge_sees_every_proposal_in_slot_order_grouped_by_experience() -> None:
    done = [
        Distilled(2, operations=(Operation("ADD", text="C: c."), Operation("NONE"))),
        Distilled(
            0,
            operations=(
                Operation("UPDATE", "E4", "Sums: add once."),
                Operation("ADD", text="refused", refused="too long"),
            ),
        ),
        Distilled(1, operations=(Operation("ADD", text="A: a."), Operation("DELETE", "E4"))),
    ]
    proposed = changes(votes(done, [10, 11, 12]))
    assert [(p.slot, p.sample_id) for p in proposed] == [(0, 10), (1, 11), (1, 11), (2, 12)]
    assert [(p.operation.op, p.operation.target) for p in proposed] == [
        ("UPDATE", "E4"),
        ("ADD", None),
        ("DELETE", "E4"),
        ("ADD", None),
    ]
    said = Said(merge=json.dumps({"operations": [{"op": "DELETE", "id": "E4", "from": ["P3"]}]}))
    on = {"E4": Evidence({10: -1, 11: -1, 12: 1}, {12: Change(0.125, 1)})}
    (op,) = await merge(teacher(said), LIBRARY, proposed, on, GroupKey(1, 0, 0))
    assert (op.op, op.target, op.from_ops) == ("DELETE", "E4", (2,))
    (shown,) = said.prompts("merge")
    marks = [x for x in shown.splitlines() if x.startswith(("### ", "P"))]
    assert marks[-6:] == [
        "### New experiences",
        "P2 ADD",
        "P4 ADD",
        "### E4",
        "P1 UPDATE",
        "P3 DELETE",
    ]
    ((scope, _),) = said.asked
    assert (scope.address.slot, scope.address.attempt, scope.sample_sha) == (-1, -1, "")


async def test_no_proposal_costs_no_merge() -> None:
    assert await merge(teacher(Said()), LIBRARY, [], {}, GroupKey(1, 0, 0)) == ()


def some(*rewards: float | None, answers: Sequence[str] = ()) -> Group:
    texts = list(answers) or ["50"] * len(rewards)
    return Group(0, Q, [rollout(i, r, texts[i]) for i, r in enumerate(rewards)])


@pytest.mark.parametrize(
    ("group", "truth", "status"),
    [
        pytest.param(some(0.0, 1.0), True, "scored", id="better and worse"),
        pytest.param(some(0.0, 0.5, 1.0), True, "scored", id="also with one just in between"),
        pytest.param(some(1.0, 1.0), True, "uniform", id="all equal"),
        pytest.param(some(1.0, None), True, "too_few", id="a failed one is not a worse one"),
        pytest.param(some(0.0, 1.0, None), True, "scored", id="two of three are enough"),
        pytest.param(some(1.0, 1.0, answers=["a", "b"]), True, "uniform", id="rewards decide"),
        pytest.param(some(1.0, 1.0, answers=["a", "b"]), False, "scored", id="answers decide"),
        pytest.param(some(0.0, 1.0, answers=[" A ", "a"]), False, "uniform", id="case is folded"),
    ],
)
def test_which_groups_teach(group: Group, truth: bool, status: str) -> None:
    assert status_of(group, truth=truth) == status


def test_a_model_that_refused_is_not_compared() -> None:
    refused = Rollout(0, 1, Q, Trajectory("refused"), Verdict(0.0, "no"))
    assert status_of(Group(0, Q, [rollout(0, 1.0), refused]), truth=True) == "too_few"


def shown(messages: Sequence[Message]) -> str:
    return "\n".join(f"[{m['role']}]\n{m['content']}\n" for m in messages)


async def test_the_prompts_are_what_was_reviewed() -> None:
    """A changed prompt is a visible diff. After a change on purpose: delete the file, run again."""
    said = Said(summarise="It added.", compare=LESSON, propose=ADD, merge=ADD)
    await distil(teacher(said), GROUP, LIBRARY, AT)
    proposed = [
        Proposal(op, n, n + 1)
        for n, op in enumerate(
            [
                Operation("ADD", text="C: c."),
                Operation("UPDATE", "E4", "Sums: add twice.", finding="misled"),
                Operation("UPDATE", "E4", "Sums: add all.", finding="too_narrow"),
            ]
        )
    ]
    on = {"E4": Evidence({2: -1, 3: 1, 4: 1}, {4: Change(0.25, 1)})}
    removed = ["Sums: guess.", "Units: drop them."]
    await merge(teacher(said), LIBRARY, proposed, on, GroupKey(1, 0, 0), disproved=removed)
    first: dict[str, str] = {s.address.stage: shown(m) for s, m in reversed(said.asked)}
    assert first.keys() == set(distillation()), "a stage of stages.STAGES that neither asks"
    first["reask"] = shown(load_prompts()["reask"].render(FENCES, error="it is empty"))
    for stage, text in first.items():
        path = GOLDEN / f"{stage}.txt"
        if not path.exists():
            path.write_text(text, "utf-8")
            pytest.fail(f"{path.name} was missing and has been written: review it")
        assert text == path.read_text("utf-8"), stage


LEAK = json.dumps({"operations": [{"op": "ADD", "text": "Sums: it is 50."}]})


def gives_away(op: Operation) -> Quarantine | None:
    given = "50" in (op.text or "")
    return Quarantine("gives_answer_away", "it gives the answer away") if given else None


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (ADD, "B: do b."),
        (LEAK, "Sums: it is 50."),
        ("I cannot.", "Sums: it is 50."),
        (ContextOverflowError("too long"), "Sums: it is 50."),
    ],
)
async def test_a_proposal_that_gives_the_answer_away_is_asked_for_once_more(
    again: str | Exception, text: str
) -> None:
    said = Said(summarise="did it", compare=LESSON, propose=lambda n: LEAK if n == 2 else again)
    done = await distil(teacher(said), GROUP, LIBRARY, AT, gives_away=gives_away)
    assert (done.failed, [op.text for op in done.operations]) == (None, [text])
    first, second, *_ = said.prompts("propose")
    assert "say it without the answer of this task" not in first
    assert "it gives the answer away, in: Sums: it is 50." in second
    assert "say it without the answer of this task" in second


async def test_a_proposal_is_asked_for_only_once_more() -> None:
    said = Said(summarise="did it", compare=LESSON, propose=LEAK)
    await distil(teacher(said), GROUP, LIBRARY, AT, gives_away=gives_away)
    assert len(said.prompts("propose")) == 2


async def test_a_teacher_that_may_not_know_the_answer_is_not_told_which_text_holds_it() -> None:
    said = Said(summarise="did it", compare=LESSON, propose=LEAK)
    await distil(teacher(said, truth=False), GROUP, LIBRARY, AT, gives_away=gives_away)
    assert len(said.prompts("propose")) == 1


async def test_an_outage_while_a_proposal_is_asked_for_once_more_is_a_failed_call() -> None:
    outage = EndpointError("HTTP 503")
    said = Said(summarise="did it", compare=LESSON, propose=lambda n: LEAK if n == 2 else outage)
    done = await distil(teacher(said), GROUP, LIBRARY, AT, gives_away=gives_away)
    assert (done.operations, done.unanswered) == ((), True)
