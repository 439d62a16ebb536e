"""Training data: settled attempts alone, no failed call as a wrong answer, no measured question."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.project import CONFIG, Project, finished

HEADING = "## Experience from practice"
INSTRUCTIONS = "Solve it. Put the answer in \\boxed{}."


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await finished(tmp_path / "p")


def rows(project: Project, format: Any, run: str = "toy", **options: Any) -> list[dict[str, Any]]:
    return [*Workspace(project.db).training_rows(run, format, **options)]


def left_out(project: Project, format: Any, **options: Any) -> dict[str, int]:
    target = project.folder / "out.jsonl"
    written = Workspace(project.db).export_data("toy", format, target, force=True, **options)
    assert written.rows == len(target.read_text().splitlines())
    return dict(written.left_out)


def place(row: dict[str, Any], attempt: str = "attempt") -> tuple[int, int, int]:
    return row["step"], row["slot"], row[attempt]


async def test_sft_teaches_every_right_answer_as_it_was_said(project: Project) -> None:
    right = {
        (r.step, r.rollout.slot, r.rollout.attempt): r
        for r in Workspace(project.db).rollouts("toy")
        if r.reward == 1
    }
    made = rows(project, "sft")
    assert [place(row) for row in made] == sorted(right)
    for row in made:
        report = right[place(row)]
        assert [(m["role"], m["content"]) for m in row["messages"]] == [
            ("system", report.system),
            ("user", report.question),
            ("assistant", report.rollout.played.response),
        ]
        assert (row["run"], row["number"], row["reward"]) == ("toy", report.number, 1.0)
        assert row["simulated"] is True
    assert left_out(project, "sft") == {"a lower reward": 72 - len(right)}
    assert len(rows(project, "sft", min_reward=0.0)) == 72
    assert rows(project, "sft", run="toy:2") == [row for row in made if row["step"] == 2]
    assert rows(project, "sft") == made


async def test_dpo_has_one_pair_of_each_group_that_teaches(project: Project) -> None:
    made = rows(project, "dpo", without_library=True)
    informative = project.query("SELECT step, slot FROM groups WHERE informative ORDER BY 1, 2")
    assert [(row["step"], row["slot"]) for row in made] == informative
    by_place = {
        (r.step, r.rollout.slot, r.rollout.attempt): r
        for r in Workspace(project.db).rollouts("toy")
    }
    for row in made:
        chosen = by_place[place(row, "chosen_attempt")]
        rejected = by_place[place(row, "rejected_attempt")]
        assert (row["chosen_reward"], row["rejected_reward"]) == (chosen.reward, rejected.reward)
        assert row["chosen_reward"] > row["rejected_reward"]
        assert row["prompt"] == [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": chosen.question},
        ]
        for part, report in (("chosen", chosen), ("rejected", rejected)):
            said = report.rollout.played.response
            assert row[part] == [{"role": "assistant", "content": said}]


async def test_attempts_that_were_shown_other_experiences_are_no_pair(project: Project) -> None:
    systems = {
        (r.step, r.rollout.slot, r.rollout.attempt): r.system
        for r in Workspace(project.db).rollouts("toy")
    }
    made = rows(project, "dpo")
    for row in made:
        prompts = [systems[place(row, f"{part}_attempt")] for part in ("chosen", "rejected")]
        assert prompts == [row["prompt"][0]["content"]] * 2
    assert 0 < len(made) < len(rows(project, "dpo", without_library=True))


async def test_more_pairs_never_take_an_attempt_twice_or_equals(project: Project) -> None:
    project.change("UPDATE verdicts SET reward = (rollout_id % 3) / 2.0")
    for most in (1, 2, 9):
        made = rows(project, "dpo", pairs=most, without_library=True)
        taken = [place(row, f"{part}_attempt") for row in made for part in ("chosen", "rejected")]
        assert len(taken) == len(set(taken))
        assert all(row["chosen_reward"] > row["rejected_reward"] for row in made)
        assert len(made) == 24  # of three different rewards, the middle one has no partner
    project.change("UPDATE verdicts SET reward = 0.5")
    with pytest.raises(Exception, match=r"no usable training data: .*no better and worse"):
        rows(project, "dpo")


async def test_what_failed_is_neither_taught_nor_rejected(project: Project) -> None:
    outcomes = {"error": None, "refused": 0.0, "content_filter": 0.0, "limit": 0.0, "empty": 0.0}
    database = project.db.read_bytes()
    ((step, slot, attempt),) = project.query(
        """SELECT r.step, r.slot, r.attempt FROM v_rollouts r JOIN groups g USING (step, slot)
            WHERE g.informative AND r.reward = 0 AND g.mean_reward > 0.6 LIMIT 1"""
    )
    at = (step, slot, attempt)
    of = (
        "rollout_id = (SELECT rollout_id FROM rollouts WHERE step = ? AND slot = ? AND attempt = ?)"
    )
    assert at in {place(row, "rejected_attempt") for row in rows(project, "dpo")}
    for outcome, reward in outcomes.items():
        project.db.write_bytes(database)
        project.change(f"UPDATE rollouts SET outcome = ? WHERE {of}", outcome, *at)
        why = None if reward is not None else "no answer"
        project.change(f"UPDATE verdicts SET reward = ?, error = ? WHERE {of}", reward, why, *at)
        if outcome in ("limit", "empty", "error"):
            project.change(f"UPDATE rollout_bodies SET response = '' WHERE {of}", *at)
        pairs = rows(project, "dpo")
        assert at not in {place(row, "rejected_attempt") for row in pairs}, outcome
        assert (step, slot) not in {(row["step"], row["slot"]) for row in pairs}, outcome
        assert at not in {place(row) for row in rows(project, "sft", min_reward=0.0)}, outcome


async def test_an_answer_that_was_cut_off_is_rejected_and_never_chosen(project: Project) -> None:
    project.change("UPDATE rollouts SET outcome = 'truncated'")
    with pytest.raises(Exception, match="no usable training data"):
        rows(project, "dpo")
    with pytest.raises(Exception, match="no complete answer: 72"):
        rows(project, "sft")
    project.change(
        """UPDATE rollouts SET outcome = 'ok' WHERE rollout_id IN
            (SELECT rollout_id FROM verdicts WHERE reward = 1)""",
    )
    pairs = rows(project, "dpo", without_library=True)
    assert len(pairs) == len(project.query("SELECT 1 FROM groups WHERE informative"))


async def test_a_group_under_way_has_no_pairs_yet(project: Project) -> None:
    before = rows(project, "dpo")
    last = before[-1]
    project.change("UPDATE steps SET status = 'open' WHERE step = ?", last["step"])
    assert rows(project, "dpo") == before  # open, and yet all of it is played
    key = "WHERE step = ? AND slot = ? AND attempt NOT IN (?, ?)"
    at = [last[k] for k in ("step", "slot", "chosen_attempt", "rejected_attempt")]
    for table in ("verdicts", "rollout_bodies", "rollouts"):
        project.change(
            f"""DELETE FROM {table} WHERE rollout_id IN
                 (SELECT rollout_id FROM rollouts {key})""",
            *at,
        )
    assert rows(project, "dpo") == before[:-1]
    assert left_out(project, "dpo")["an unfinished group"] == 2
    project.change("UPDATE steps SET status = 'closed'")
    assert rows(project, "dpo") == before


async def test_what_an_evaluation_asks_is_left_out_unless_it_is_named(project: Project) -> None:
    everything = rows(project, "sft", min_reward=0.0)
    await project.evaluate("data.dataset=train", limit=3)
    kept = rows(project, "sft", min_reward=0.0)
    assert {row["number"] for row in everything} - {row["number"] for row in kept} == {1, 2, 3}
    assert rows(project, "sft", min_reward=0.0, include_eval=True) == everything
    assert left_out(project, "sft")["a question that an evaluation uses"] == 18
    names = [r.name for r in Workspace(project.db).runs().runs]
    run = next(name for name in names if name.startswith("toy/eval"))
    with pytest.raises(Exception, match=f"{run} is an evaluation") as refused:
        rows(project, "sft", run=run)
    assert "--include-eval" in str(getattr(refused.value, "hint", ""))
    assert rows(project, "sft", run=run, include_eval=True, min_reward=0.0)


async def test_without_the_library_the_prompt_is_the_bare_agents(project: Project) -> None:
    shown, bare = rows(project, "sft"), rows(project, "sft", without_library=True)
    assert any(HEADING in row["messages"][0]["content"] for row in shown)
    assert {row["messages"][0]["content"] for row in bare} == {INSTRUCTIONS}
    assert [row["messages"][1:] for row in bare] == [row["messages"][1:] for row in shown]
    pairs = rows(project, "dpo", without_library=True)
    assert HEADING not in json.dumps(pairs)


async def test_nothing_to_write_leaves_no_file_and_says_why(project: Project) -> None:
    project.change("DELETE FROM verdicts")
    project.change("UPDATE rollouts SET outcome = 'error'")
    target = project.folder / "out.jsonl"
    with pytest.raises(Exception, match="no reward: 72"):
        Workspace(project.db).export_data("toy", "sft", target)
    assert sorted(p.name for p in project.folder.iterdir() if "out" in p.name) == []
    with pytest.raises(Exception, match="toy has no step 9"):
        rows(project, "sft", run="toy:9")
    with pytest.raises(Exception, match="pairs 0: should be 1 or more"):
        rows(project, "dpo", pairs=0)
    with pytest.raises(Exception, match=r"min_reward is 1.5"):
        rows(project, "sft", min_reward=1.5)
    with pytest.raises(Exception, match="pairs works only with dpo"):
        rows(project, "sft", pairs=1)
    with pytest.raises(Exception, match="min_reward works only with sft"):
        rows(project, "dpo", min_reward=0.0)
    with pytest.raises(Exception, match="no training data format 'ppo'"):
        rows(project, "ppo")


async def test_tool_calls_come_with_the_tools(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    kit = {"py": {"mode": "builtin", "name": "python_executor"}}
    project.config.write_text(
        CONFIG.replace("  agent:\n", f"  agent:\n    toolkits: {json.dumps(kit)}\n")
    )
    await project.practise("practice.epochs=1", "practice.batch_size=12")
    made = rows(project, "sft", min_reward=0.0)
    called = [row for row in made if any("tool_calls" in m for m in row["messages"])]
    assert called
    row = called[0]
    (tool,) = json.loads(row["tools"])
    assert tool["function"]["name"] == "execute_python_code"
    roles = [m["role"] for m in row["messages"]]
    assert roles[:2] == ["system", "user"]
    assert roles[2:4] == ["assistant", "tool"]
    (call, *_) = row["messages"][2]["tool_calls"]
    assert isinstance(call["function"]["arguments"]["code"], str)
    assert row["messages"][3]["tool_call_id"] == call["id"]
    assert row["messages"][-1]["role"] == "assistant"
    for pair in rows(project, "dpo"):
        assert [m["role"] for m in pair["prompt"]] == ["system", "user"]
        assert pair["chosen"][0]["role"] == pair["rejected"][0]["role"] == "assistant"
        assert "tools" in pair


OWN = """
import json
import urllib.request


def once(question, system, context):
    messages = [{"role": "user", "content": f"{system}\\n\\nThe task: {question}"}]
    body = json.dumps({"model": context.model, "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {context.api_key}", "Content-Type": "application/json"}
    url = f"{context.base_url}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def twice(question, system, context):
    once(question, "Think of nothing.", context)
    return once(question, system, context)
"""


@pytest.mark.long
async def test_a_program_of_ones_own_is_taught_where_it_holds_one_conversation(
    tmp_path: Path,
) -> None:
    for function in ("once", "twice"):
        project = Project(tmp_path / function)
        (project.folder / "own.py").write_text(OWN)
        own = f"  agent:\n    type: python\n    function: own.py:{function}\n"
        project.config.write_text(CONFIG.replace("  agent:\n", own))
        if function == "twice":
            await project.practise("practice.epochs=1", "practice.grpo_n=2")
            with pytest.raises(Exception, match=r"left out \(no single conversation: 24"):
                rows(project, "sft", min_reward=0.0)
            continue
        await project.practise("practice.epochs=2", "practice.batch_size=12")
        shown = rows(project, "sft", min_reward=0.0)
        bare = rows(project, "sft", min_reward=0.0, without_library=True)
        assert len(shown) == len(bare) == 72
        roles = [[m["role"] for m in row["messages"]] for row in bare]
        assert roles == [["user", "assistant"]] * 72
        assert any(HEADING in row["messages"][0]["content"] for row in shown)
        start = f"{INSTRUCTIONS}\n\nThe task: "
        assert all(row["messages"][0]["content"].startswith(start) for row in bare)


async def test_a_line_of_two_branches_is_read_to_its_end(project: Project) -> None:
    await project.practise(restart_step=2)
    ws = Workspace(project.db)
    right = [
        (r.step, r.rollout.slot, r.rollout.attempt) for r in ws.rollouts("toy") if r.reward == 1
    ]
    assert [place(row) for row in rows(project, "sft")] == sorted(right)
    assert {step for step, _, _ in right} == {0, 1, 2, 3}
