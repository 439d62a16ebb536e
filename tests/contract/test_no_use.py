"""A step of which no comparison is of use is paused: before it is closed and more is paid."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.command import Gp, Ran
from tests.contract.endpoint.actions import completion
from tests.contract.endpoint.server import on_a_thread
from tests.contract.endpoint.simulated import stage_of
from tests.contract.project import Project, Served, served
from tests.contract.test_practice_end import (
    FAILING,
    HOSTILE,
    Said,
    Teacher,
    flat,
    operations,
)

NO_LESSON: Said = (200, completion("<lessons></lessons>"))


class Asked:
    """The simulated endpoint, and what it was asked since the last look."""

    def __init__(self, teacher: Teacher, served: Served) -> None:
        self.teacher, self._served, self._from = teacher, served, 0

    def stages(self) -> Counter[str]:
        bodies, self._from = self._served.bodies[self._from :], len(self._served.bodies)
        return Counter(map(stage_of, bodies))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def asked(project: Project, gp: Gp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    monkeypatch.setenv("GRPO_PRACTICE_DB", str(project.db))
    teacher = Teacher()
    with on_a_thread(served(teacher.hook)) as endpoint:
        teacher.url = endpoint.url
        yield Asked(teacher, endpoint)


@pytest.fixture
def practise(gp: Gp, asked: Asked) -> Gp:
    """`practice` in steps of 6 questions: 1 informative group in step 0, 3 in step 1."""
    base = f"evaluation.agent.model.model_provider.base_url={asked.teacher.url}"
    words = f"practice -c c.yaml --epochs 1 --grpo-n 5 --set {base}".split()
    return lambda *more: gp(*words, *more)


def is_paused(ran: Ran, *said: str) -> bool:
    assert ran.code == 6, ran.err
    for text in said:
        assert text in flat(ran.err)
    return "no comparison of step 1 was useful (" in flat(ran.err)


ONE_ADD = operations({"op": "ADD", "text": HOSTILE})
USELESS: dict[str, tuple[str, Said, str, int]] = {
    "unreadable": (
        "compare",
        FAILING["unreadable"][0],
        "; the teacher said: I would say that one should be careful.",
        9,
    ),
    "refused": (
        "compare",
        FAILING["refused"][0],
        "(3 refused); ReplyError: refused: I cannot help with that. hint: choose another model",
        9,
    ),
    "provider": (
        "compare",
        FAILING["provider"][0],
        "(3 provider); EndpointError: ",
        3,
    ),
    "proposals": (
        "propose",
        FAILING["unreadable"][0],
        "; the teacher said: I would say",
        3,
    ),
    "quarantined": (
        "propose",
        ONE_ADD,
        f"(3 quarantined as sets aside instructions); it tells the reader to ignore"
        f" instructions: {HOSTILE}",
        3,
    ),
    "merged": (
        "merge",
        ONE_ADD,
        "quarantined as sets aside instructions); it tells the reader",
        3,
    ),
}


@pytest.mark.long_after(1)
@pytest.mark.parametrize("kind", USELESS)
def test_the_same_command_repeats_the_comparisons_and_keeps_the_rollouts(
    asked: Asked, practise: Gp, gp: Gp, kind: str, project: Project
) -> None:
    asked.teacher.stage, asked.teacher.says, said, comparisons = USELESS[kind]
    ran = practise()
    assert is_paused(ran, said, "run the same command again: it keeps the rollouts")
    assert project.query("SELECT step, status FROM steps") == [(0, "closed"), (1, "open")]
    assert asked.stages()["play"] == 60
    assert gp("runs", "list", "--json").document["runs"][0]["status"] == "paused"

    assert is_paused(practise(), said)  # paid for again, since the cause may be gone
    paid = asked.stages()
    assert (paid["play"], paid["compare"]) == (0, comparisons)

    asked.teacher.says = None
    mended = practise()
    assert (mended.code, "could not be used" in mended.err) == (0, False)
    paid = asked.stages()
    assert (paid["play"], paid["compare"]) == (0, 3)
    _, after = gp("practice", "--json").document["steps"]
    assert (after["status"], after["stats"]["distillation"]["failed"]) == ("closed", {})


def test_comparisons_that_find_no_lesson_are_of_use(asked: Asked, practise: Gp) -> None:
    asked.teacher.says = NO_LESSON
    assert practise().code == 0


@pytest.mark.long
def test_summaries_are_kept_unless_they_are_the_ones_of_no_use(asked: Asked, practise: Gp) -> None:
    whole = ("--set", "practice.summaries=always")
    asked.teacher.says = FAILING["unreadable"][0]
    assert is_paused(practise(*whole))
    summaries = asked.stages()["summarise"]
    assert summaries == 4 * 5
    asked.teacher.stage, asked.teacher.says = "summarise", FAILING["empty"][0]
    assert practise(*whole).code == 0
    assert asked.stages() == {"compare": 3, "propose": 3, "merge": 1}


@pytest.mark.long
def test_summaries_of_no_use_are_repeated(asked: Asked, practise: Gp) -> None:
    whole = ("--set", "practice.summaries=always")
    asked.teacher.stage, asked.teacher.says = "summarise", FAILING["empty"][0]
    assert is_paused(practise(*whole), "(3 empty); ReplyError: it is empty")
    asked.stages()
    asked.teacher.says = None
    assert practise(*whole).code == 0
    assert asked.stages() == {"summarise": 3 * 5, "compare": 3, "propose": 3, "merge": 1}


@pytest.mark.long
def test_another_teacher_goes_on_with_the_rollouts_that_are_paid(
    asked: Asked, practise: Gp
) -> None:
    asked.teacher.says = FAILING["cut"][0]
    ran = practise()
    assert is_paused(ran, "raise practice.teacher_model.model_settings.max_tokens")
    asked.stages()
    asked.teacher.says = None
    more = ("--set", "practice.teacher_model.model_settings.max_tokens=4096")
    refused = practise(*more)
    assert (refused.code, "--restart-step 1 to keep the steps" in flat(refused.err)) == (2, True)
    assert practise(*more, "--restart-step", "1").code == 0
    assert asked.stages() == {"compare": 3, "propose": 3, "merge": 1}


@pytest.mark.long
@pytest.mark.parametrize(("questions", "n"), [(4, 1), (12, 4)])
def test_a_pilot_without_a_usable_comparison_fails(
    asked: Asked, practise: Gp, project: Project, questions: int, n: int
) -> None:
    asked.teacher.says = FAILING["unreadable"][0]
    pilot = ("--batch-size", "12", "--pilot", str(questions))
    ran = practise(*pilot)
    assert (ran.code, ran.out) == (1, "")
    assert f"no comparison of step 0 was useful ({n} unreadable); ReplyError: " in flat(ran.err)
    assert asked.stages() == {"play": 5 * questions, "compare": 3 * n}
    asked.teacher.says = None
    assert practise(*pilot).code == 0
    assert asked.stages()["compare"] == n
    assert practise(*pilot[:2]).code == 0
    assert asked.stages()["compare"] == 4 - n  # what the second pilot compared is used
    assert project.query("SELECT sum(informative), sum(status = 'failed') FROM groups") == [(4, 0)]


@pytest.mark.long
def test_what_the_teacher_said_is_shown_while_the_step_is_open(
    asked: Asked, practise: Gp, gp: Gp
) -> None:
    asked.teacher.says = FAILING["unreadable"][0]
    assert is_paused(practise())
    shown = gp("rollouts", "show", "toy:1", "--limit", "6")
    assert shown.out.count("[teacher: compare]") == 3 * 3
    assert shown.out.count("I would say that one should be careful.") == 3 * 3
    assert "[teacher is asked" not in shown.out
    whole = gp("rollouts", "show", "toy:1", "--limit", "6", "--full").out
    assert whole.count("[request to the teacher: compare]") == 3 * 3
    assert "## The attempts" in whole
    calls = gp("rollouts", "show", "toy:1", "--limit", "6", "--json").document["teacher"]
    assert [(call["step"], call["stage"]) for call in calls] == [(1, "compare")] * 9
    assert {call["reply"] for call in calls} == {"I would say that one should be careful."}


def test_doctor_asks_the_teacher_for_a_comparison(asked: Asked, gp: Gp) -> None:
    base = f"evaluation.agent.model.model_provider.base_url={asked.teacher.url}"
    words = ("doctor", "--json", "-c", "c.yaml", "--set", base)
    ran = gp(*words)
    assert (ran.code, ran.document["requests"]) == (0, 5)
    assert asked.stages() == {"play": 4, "compare": 1}
    assert teacher_states(ran)[-1][0] == "ok"
    assert "its tiny comparison can be read (0 lessons, " in teacher_states(ran)[-1][1]

    asked.teacher.says = FAILING["unreadable"][0]
    ran = gp(*words)
    assert (ran.code, ran.document["requests"]) == (3, 7)
    state, text = teacher_states(ran)[-1]
    assert state == "problem"
    assert "its tiny comparison cannot be read: " in text
    assert "; the teacher said: I would say that one should be careful." in text
    (hint,) = (f["hint"] for f in ran.document["findings"] if f["sentence"] == text)
    assert hint.startswith("the model may be too weak to teach")


def teacher_states(ran: Ran) -> list[tuple[str, str]]:
    found = ran.document["findings"]
    return [(f["severity"], f["sentence"]) for f in found if f["about"] == "teacher"]
