"""Practice on attempts that already exist, from a file or from a run."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.endpoint.simulated import respond
from tests.contract.project import Project, cut_off, questions, served
from tests.contract.serving import Q, Recorded, both

Line = dict[str, Any]
SMALL = "practice.batch_size=3"
DEAD = "http://127.0.0.1:9/v1"
"""An endpoint that nobody may ask."""
AGENT = "evaluation.agent.model.model_provider"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def attempts(n: int = 6, each: int = 6) -> list[Line]:
    """Return attempts of the simulated agent that differ, at the first practice questions."""
    found = list[Line]()
    for row in questions(12)[:n]:
        for attempt in range(each):
            asked = [{"role": "user", "content": row["question"]}]
            body = {"model": "sim", "seed": attempt, "messages": asked}
            said = respond("/v1/chat/completions", json.dumps(body).encode())[1]
            text = said["choices"][0]["message"]["content"]
            right = attempt % 2 == 0  # as a verify function of the user's own might see it
            line = {"question": row["question"], "answer": row["answer"], "response": text}
            found.append(line | {"reward": float(right), "created": attempt})
    return found


def write(project: Project, rows: Iterable[Mapping[str, Any] | str], name: str = "a.jsonl") -> str:
    """Write a file of attempts; return its path."""
    path = project.folder / name
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return str(path)


def stages(project: Project, run: str = "toy") -> dict[str, int]:
    """Return stage → number of its calls in a run."""
    sql = """SELECT stage, count(*) FROM calls JOIN branches USING (branch_id) WHERE run_id = ?
              GROUP BY 1"""
    return dict(project.query(sql, run))


async def test_a_file_of_attempts_teaches_and_nothing_is_played(project: Project) -> None:
    async with served() as endpoint:
        teacher = "practice.teacher_model={model_provider: {model: sim}}"
        student = f"{AGENT}={{model: m, base_url: '{DEAD}'}}"
        file = write(project, attempts())
        dead = {"mode": "mcp", "config": {"command": "no-such-program", "args": []}}
        tool = f"evaluation.agent.toolkits={json.dumps({'dead': dead})}"  # would fail if opened
        # No model that plays is asked, so it needs neither a key nor a price.
        given = (SMALL, student, teacher, tool)
        report = await project.practise(*given, attempts=file, max_cost=1.0)
        assert endpoint.bodies == []
    assert report.library.experiences
    assert stages(project).keys() == {"compare", "propose", "merge"}
    assert [row.plan.slots for row in report.steps] != []
    assert {k for row in report.steps for _, k in row.plan.slots} == {6}
    assert sum(row.groups for row in report.steps) == 6  # one pass, whatever the epochs
    assert project.wrong == []
    assert report.library.experiences[0].text in Workspace(project.db).export("toy").text
    said = " ".join(found.sentence for found in report.findings)
    assert "no recorded attempt used the library" in said
    page = Path(project.db).with_name("report.html")
    Workspace(project.db).report("toy", output=page)
    assert "no recorded attempt used the library" in page.read_text("utf-8")
    checked = Workspace(project.db).diagnose("toy").findings
    assert [one.about for one in checked if one.severity != "ok"] == ["recorded"]
    # Each attempt can be read, and its recorded reward stands.
    found = Workspace(project.db).transcripts("toy", limit=99).document()
    told = {one["transcript"][-1]["content"] for one in found["rollouts"]}
    assert told == {line["response"] for line in attempts()}


async def test_rewards_move_no_experience_that_no_attempt_used(project: Project) -> None:
    await project.practise("practice.batch_size=2", attempts=write(project, attempts()))
    shown = project.query("SELECT DISTINCT l.n FROM groups JOIN libraries l USING (library_id)")
    assert shown == [(0,)]
    assert project.query("SELECT count(*) FROM groups WHERE library_id IS NULL") == [(0,)]
    assert project.query("SELECT count(*) FROM rollouts WHERE left_out NOT NULL") == [(0,)]
    evidence = Workspace(project.db).experiences("toy").evidence
    assert evidence
    assert all(of.supporting and of.reward_change is None for of in evidence.values())


async def test_an_evaluation_is_learnt_from_like_a_file_with_the_same_attempts(
    project: Project,
) -> None:
    # Of another agent, whose attempts differ.
    agent = ("evaluation.agent.agent.name=other", "evaluation.agent.agent.instructions=Solve.")
    asks = ("evaluation.data.dataset=train", "evaluation.pass_k=6", "evaluation.exp_id=logs")
    warm = "evaluation.agent.model.model_settings={temperature: 1}"
    await project.evaluate(*agent, *asks, warm, exp_id="logs")
    report = await project.practise(SMALL, attempts="logs/eval")
    assert any("logs/eval: " in text and "are used, " in text for text in project.notices)
    assert stages(project).keys() == {"compare", "propose", "merge"}
    rows = project.query(
        """SELECT s.question, s.answer, b.response, r.reward, r.attempt FROM v_rollouts r
             JOIN samples s USING (sample_id) JOIN rollout_bodies b USING (rollout_id)
            WHERE run_id = 'logs/eval' ORDER BY step, slot, attempt"""
    )
    names = ("question", "answer", "response", "reward", "created")
    lines = [dict(zip(names, row, strict=True)) for row in rows]
    file = write(project, [line | {"answer": json.loads(line["answer"])} for line in lines])
    same = await project.practise(SMALL, attempts=file, exp_id="again")
    of = [[(row.rollouts, row.stats["mean_reward"]) for row in r.steps] for r in (report, same)]
    assert of[0] == of[1]
    # A practice run can be learnt from as well.
    await project.practise(SMALL, attempts="toy", exp_id="third")
    assert stages(project, "third").keys() == {"compare", "propose", "merge"}


async def test_attempts_without_a_reward_are_scored_and_paid_once(project: Project) -> None:
    lines = [{k: v for k, v in line.items() if k != "reward"} for line in attempts(4)]
    lines[0]["reward"] = 1.0
    file, judge = write(project, lines), ("evaluation.verify=judge", "practice.max_failed_share=1")
    left = Workspace(project.db).forecast_practice(
        config=project.config, env={}, attempts=file, sets=judge
    )
    assert {x.stage: x.calls.high for x in left.stages}["judge"] == 23
    assert "play" not in {x.stage for x in left.stages}
    with pytest.raises(Exception, match="9 requests spent so far"):
        await project.practise(*judge, attempts=file, max_requests=9)
    assert stages(project) == {"judge": 9}
    await project.practise(*judge, attempts=file)
    assert stages(project)["judge"] == 23
    assert project.query("SELECT count(*) FROM verdicts WHERE reward NOT NULL") == [(24,)]
    calls = project.count("calls")
    again = await project.practise(*judge, attempts=file)
    assert (project.count("calls"), again.requests.new) == (calls, 0)


async def test_a_recording_of_serve_is_scored_by_a_judge(tmp_path: Path) -> None:
    async with both(tmp_path, run="rec") as (_, place):
        for _ in range(3):
            await place.reply(Q)
        await Recorded(tmp_path).holds(3)
    project = Project(tmp_path)
    project.db = tmp_path / "rec.db"
    project.fill()
    judge = ("evaluation.verify=judge", "practice.teacher_model={model_provider: {model: sim}}")
    await project.practise(*judge, attempts="rec", exp_id="learnt")
    assert stages(project, "learnt")["judge"] == 3
    assert project.query("SELECT response FROM rollout_bodies") == [
        ("reply 1",), ("reply 2",), ("reply 3",)
    ]  # fmt: skip


async def test_bad_lines_are_counted_and_named_and_the_others_are_used(project: Project) -> None:
    good = attempts(2)
    asked = {"question": "Which one?", "answer": "a"}
    bad: list[Line | str] = [
        "{",
        {"response": "no question", "reward": 1},
        {**asked, "response": "x" * 2_000_000, "reward": 1},
        {**asked, "response": "alone", "reward": 1},
        {"question": "Equal?", "answer": "b", "response": "1", "reward": 1},
        {"question": "EQUAL? ", "answer": "b", "response": "2", "reward": 1},
        {"question": "Gold?", "answer": "c", "response": "1", "reward": 1},
        {"question": "Gold?", "answer": "d", "response": "2", "reward": 0},
        {**asked, "response": "much", "reward": 1.5},
        {**asked, "response": "odd", "reward": "1"},
        good[0],
        "[1]",
        {**asked, "reward": 0},
        '{"question": "q", "response": "r", "reward": NaN}',
    ]
    report = await project.practise(attempts=write(project, [*good, *bad]))
    assert sum(row.rollouts for row in report.steps) == 12
    said = [text.partition("a.jsonl: ")[2] for text in project.notices if "a.jsonl" in text]
    assert said == [
        "12 of 26 recorded attempts at 2 questions are used",
        "2 left out: not JSON (line 13, line 26)",
        "1 left out: no question (line 14)",
        "1 left out: longer than 1,000,000 characters (line 15)",
        "2 left out: the reward is not a number from 0 to 1 (line 21, line 22)",
        "1 left out: not a JSON object (line 24)",
        "1 left out: no response (line 25)",
        "1 left out: recorded twice (line 23)",
        "2 left out: two answers for one question (line 19, line 20)",
        "1 left out: the only attempt at its question (line 16)",
        "2 left out: all attempts at the question have the same reward (line 17, line 18)",
    ]
    odd: Line = {"messages": [{"role": "user", "content": "?", "tool_calls": 5}], "answer": None}
    gold: Line = {**asked, "question": "Which two?"}
    alone = {**gold, "messages": [{"role": "assistant", "content": "a"}]}
    rows = [{**odd, "response": "1"}, {**odd, "response": "2"}, alone]
    await project.practise(
        "evaluation.verify=exact",
        attempts=write(project, [*rows, {**gold, "response": "b"}], "unscored.jsonl"),
        exp_id="unscored",
    )
    assert any("1 of 2 questions cannot be scored: " in text for text in project.notices)
    with pytest.raises(Exception, match="1 of 1 question cannot be scored"):
        await project.practise(attempts=write(project, rows[:2], "no-answer.jsonl"), exp_id="other")
    nothing = write(project, bad[3:6], "nothing.jsonl")
    with pytest.raises(Exception, match="no question has two attempts"):
        await project.practise(attempts=nothing, exp_id="other")


async def test_groups_have_names_and_a_conversation_is_read_whole(project: Project) -> None:
    def line(group: str, text: str, reward: int) -> Line:
        tool = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages = [
            {"role": "system", "content": f"You are {group}."},
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "content": "", "tool_calls": [tool]},
            {"role": "tool", "tool_call_id": "1", "content": "a clue"},
            {"role": "assistant", "content": text},
        ]
        return {"messages": messages, "group": group, "reward": reward}

    lines = [line(g, f"{g}{n}", n == 24) for g in ("a", "b") for n in range(25)]
    report = await project.practise(attempts=write(project, lines))
    assert [k for row in report.steps for _, k in row.plan.slots] == [20, 20]
    assert any("10 left out: more than 20 attempts" in text for text in project.notices)
    assert project.query("SELECT sum(reward) FROM v_rollouts WHERE run_id = 'toy'") == [(2.0,)]
    (one,) = project.query("SELECT turns, tool_calls FROM rollouts LIMIT 1")
    assert one == (2, 1)
    text = json.dumps(Workspace(project.db).transcripts("toy").document())
    assert all(part in text for part in ("You are a.", "a clue", "look", "b24"))


@pytest.mark.long
async def test_a_cut_off_run_resumes_to_the_same_library_and_pays_nothing_twice(
    project: Project, tmp_path: Path
) -> None:
    lines = [{**line, "reward": None} if i % 6 == 1 else line for i, line in enumerate(attempts(8))]
    settings = ("evaluation.verify=judge", "practice.batch_size=2")
    whole = Project(tmp_path / "whole")
    await whole.practise(*settings, attempts=write(whole, lines))
    results, calls = whole.results(), whole.count("calls")
    file = write(project, lines)
    async with served() as endpoint:
        for after in (1, 9, 14, 20):
            await cut_off(
                project.practise(*settings, endpoint.override(), attempts=file), endpoint, after
            )
        await project.practise(*settings, endpoint.override(), attempts=file)
        assert len(endpoint.bodies) - calls <= 4 * 8  # what was in flight
    assert (project.results(), project.count("calls")) == (results, calls)
    await whole.practise(*settings, attempts=str(whole.folder / "a.jsonl"), restart_step=1)
    assert whole.results() == results
    assert project.wrong == []
    # A changed file is another run.
    with pytest.raises(Exception, match="toy"):
        await project.practise(*settings, attempts=write(project, lines[1:]))


async def test_practice_from_the_run_goes_on_live_with_its_votes(project: Project) -> None:
    first = await project.practise(SMALL, attempts=write(project, attempts()))
    before = Workspace(project.db).experiences("toy").evidence
    live = await Workspace(project.db).practise_async(
        start="toy", exp_id="live", epochs=1, batch_size=12, env={}
    )
    assert stages(project, "live")["play"] == 36
    assert first.library.experiences
    known = {e.id for e in live.library.experiences} & before.keys()
    after = Workspace(project.db).experiences("live").evidence
    assert known
    assert any(after[name].supporting >= before[name].supporting for name in known)


async def test_doctor_warns_if_test_questions_are_among_the_recorded_ones(project: Project) -> None:
    file = write(
        project,
        [
            {**line, "question": row["question"]}
            for line, row in zip(
                attempts(2), [q for q in questions(24)[12:14] for _ in range(6)], strict=True
            )
        ],
    )
    text = project.config.read_text().replace("epochs: 2", f"epochs: 2, attempts: '{file}'")
    project.config.write_text(text)
    found = await Workspace(project.db).doctor_async(config=project.config, env={})
    sentences = [one.sentence for one in found.findings]
    assert "2 of 12 questions are also in the recorded data" in sentences
