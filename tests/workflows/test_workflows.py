"""The two published workflows, typed as their page has them, from `data download` to `eval`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workflows.desk import Desk, commands_of
from tests.workflows.play import MATH, WEB, Played, billed, fetch, kill, play, publish
from tests.workflows.services import REFUSAL, services

PAGE = Path(__file__).parents[2] / "docs/workflows.md"
TEACHING = {"compare", "propose", "merge"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with services() as running:
        publish(running.hub)
        yield Desk(tmp_path / "desk", running)


@pytest.mark.parametrize("commands", [MATH, WEB], ids=["math", "web"])
def test_the_page_has_these_commands_in_this_order(commands: tuple[str, ...]) -> None:
    listed = commands_of(PAGE.read_text("utf-8"))
    start = listed.index(commands[0])
    assert tuple(listed[start : start + len(commands)]) == commands


@pytest.mark.long
def test_mathematics_with_a_python_tool(desk: Desk) -> None:
    played = play(desk, MATH)
    before, after = MATH[3:5], MATH[7:9]
    for plain, learnt in zip(before, after, strict=True):
        assert played.score(learnt) > played.score(plain) + 0.15
        assert played.reports[learnt]["score"]["coverage"] == 1.0
        assert set(played.asked[learnt]) == {"play"}
    practice = MATH[5]
    assert set(played.asked[practice]) == {"play"} | TEACHING
    rollouts, calls = 20 * 5, desk.calls("math_practice")
    assert calls["play"] == played.asked[practice]["play"] == 2 * rollouts
    assert rollouts <= calls["execute_python_code"] < 2 * rollouts
    _nothing_is_paid_twice(played)
    told = desk.query(
        "SELECT reply FROM call_bodies JOIN calls USING (call_id) WHERE role = 'tool'"
    )
    assert told
    assert not [raw for (raw,) in told if b"Error" in bytes(raw)]
    _before_and_after(desk, practice, "math_AIME24/eval", "math_AIME24/eval/math_practice_agent")


@pytest.mark.long
def test_web_search(desk: Desk) -> None:
    played = play(desk, WEB)
    plain, practice, learnt = WEB[2], WEB[3], WEB[5]
    assert played.score(learnt) > played.score(plain) + 0.15
    assert played.reports[learnt]["score"]["coverage"] == 1.0
    for command, rollouts, run in ((plain, 30, "web/eval"), (practice, 150, "web_practice")):
        asked, calls = played.asked[command], desk.calls(run)
        assert asked["play"] == calls["play"] == 3 * rollouts
        assert asked["judge"] == calls["judge"] == rollouts
        assert asked["tool"] == asked["jina-reader"] == calls["web_qa"] >= rollouts
        assert asked["serper"] == calls["search"] >= rollouts
    assert (
        set(played.asked[practice]) == {"play", "judge", "tool", "serper", "jina-reader"} | TEACHING
    )
    assert desk.query("SELECT count(*) FROM operations WHERE domains <> '[]'")[0][0] > 0
    _nothing_is_paid_twice(played)
    _before_and_after(desk, practice, "web/eval", "web/eval/web_practice_agent")


def _before_and_after(desk: Desk, practice: str, before: str, after: str) -> None:
    """The practice knows the evaluations of its agent, whose experiment has another name."""
    again = desk.json(practice)
    assert (again["before"]["run"], again["after"]["run"]) == (before, after)


def _nothing_is_paid_twice(played: Played) -> None:
    """Practice and the last evaluation, typed again, ask nothing and say the same."""
    desk = played.desk
    asked = desk.services.asked()
    for command in [c for c in played.reports if " practice " in c or " --agent " in c][:2]:
        again, first = desk.json(command), played.reports[command]
        assert again["requests"]["new"] == 0
        assert again.get("score") == first.get("score")
        assert again.get("library") == first.get("library")
    assert desk.services.asked() == asked


@pytest.mark.long
@pytest.mark.parametrize(
    ("commands", "at_once", "api"),
    [  # rollouts of a step; on the web, two calls in one turn
        (MATH, 100, "chat.completions"),
        (WEB, 2 * 20, "chat.completions"),
        (WEB, 2 * 20, "responses"),
    ],
    ids=["math", "web", "web, Responses API"],
)
def test_a_kill_in_mid_trajectory_pays_what_was_in_flight_only(
    tmp_path: Path, commands: tuple[str, ...], at_once: int, api: str
) -> None:
    with services(latency_s=0.02, api=api) as running:
        desk = Desk(tmp_path / "killed", running)
        fetch(desk, commands)
        shutil.copytree(desk.folder, tmp_path / "whole")
        killed = kill(desk, commands)
    assert killed.cut > 0
    assert 0 <= killed.paid_twice == killed.in_flight <= at_once
    assert desk.query("PRAGMA integrity_check") == [("ok",)]
    with services() as running:
        # On chat completions: the library is the same, whichever API the killed run spoke.
        whole = Desk(tmp_path / "whole", running)
        report = whole.json(next(c for c in commands if " practice " in c))
        assert sum(running.asked().values()) == billed(whole) == billed(desk)
    assert killed.report["library"] == report["library"]


@pytest.mark.long
def test_a_model_that_takes_tools_on_the_responses_api_alone_stops_and_goes_on(
    tmp_path: Path,
) -> None:
    practice = next(c for c in WEB if " practice " in c)
    with services(api="responses") as running:
        desk = Desk(tmp_path / "desk", running)
        fetch(desk, WEB)
        chat = " --set evaluation.agent.model.model_provider.type=chat.completions"
        _, err = desk.type(practice + chat, 3)
        assert REFUSAL[:60] in err
        hint = "--set evaluation.agent.model.model_provider.type=responses"
        assert f"hint: {hint}\n" in err
        assert desk.query("SELECT count(*) FROM verdicts") == [(0,)]
        report = desk.json(f"{practice} {hint}")  # the same run
        assert desk.json(practice)["requests"]["new"] == 0  # as the environment says
    assert desk.query("SELECT count(*) FROM runs") == [(1,)]
    assert desk.query("SELECT DISTINCT outcome FROM rollouts") == [("ok",)]
    assert report["library"]
