"""What could not be scored is missing, never wrong, and every report says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.command import Gp
from tests.contract.endpoint.actions import completion
from tests.contract.endpoint.simulated import stage_of
from tests.contract.project import Project, Said, served

SAID_CHARS = 4_000
"""Characters that are kept of what foreign code says."""
WHOEVER = """
import sys, time, zlib

class Base(BaseException):
    pass

def sometimes(sample, timeout_score=0, how="raise", **kwargs):
    if zlib.crc32(sample.response.encode()) % 8:
        return {"reward": float(len(sample.response) % 2)}
    if how == "raise":
        raise ValueError("odd")
    if how == "megabytes":
        raise ValueError("x" * 3_000_000)
    if how == "base":
        raise Base("not an Exception")
    if how == "exit":
        sys.exit(3)
    if how == "hang":
        time.sleep(60)
    return BAD[how]

async def coroutine():
    return {"reward": 1}

BAD = {"none": None, "nan": {"reward": float("nan")}}

def talks(sample, **kwargs):
    return {"reward": 1.0, "reasoning": "r" * 5_000_000, "extracted": "e" * 1_000_000}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (project.folder / "whoever.py").write_text(WHOEVER)
    return project


def verify(how: str, timeout_s: float = 30) -> str:
    said = {"name": "whoever.py:sometimes", "timeout_s": timeout_s, "params": {"how": how}}
    return f"verify={json.dumps(said)}"


def by_row(project: Project, run: str) -> list[tuple[Any, ...]]:
    """(outcome, reason, reward, has a response) of every rollout."""
    return project.query(
        """SELECT outcome, reason, reward, b.response <> '' FROM v_rollouts r
             JOIN rollout_bodies b USING (rollout_id) WHERE run_id = ?""",
        run,
    )


async def test_1_56_a_verify_function_that_hangs_is_ended_and_gives_no_reward(
    project: Project,
) -> None:
    report = await project.evaluate(verify("hang", 0.5), "pass_k=1")
    failed = report.outcomes["error.verify"]
    assert (report.score.planned, report.score.scored) == (12, 12 - failed)
    assert all("took longer than 0.5 s" in error for error in report.failures)


async def test_1_54_groups_shrink_and_the_summary_says_by_how_much(
    project: Project, gp: Gp
) -> None:
    spec = f"evaluation.{verify('raise')}"
    report = await project.practise(spec, "practice.max_failed_share=1")
    counted = project.query(
        "SELECT step, planned, scored, count(*) FROM groups WHERE scored < 3 GROUP BY 1, 2, 3"
    )
    assert counted
    shrunk = [(s.step, s.planned, s.scored, s.groups) for s in report.health.shrunk]
    assert sorted(shrunk) == sorted(counted)
    rewards = project.query("SELECT count(*) FROM verdicts WHERE reward IS NULL")
    assert rewards == [(0,)]
    failed = report.outcomes["error.verify"]
    text = " ".join(gp("practice", "--db", str(project.db)).out.split())
    assert f"outcomes {failed} error.verify" in text
    sizes = {scored for _, _, scored, _ in counted}
    for scored in sizes:
        groups = sum(n for _, _, size, n in counted if size == scored)
        assert f"{scored} of 3 attempts count in {groups} group" in text
    assert f"not reproducible: {failed} rollouts got no reward because of an error" in text
    listed = [(*x.values(),) for x in report.document()["health"]["shrunk"]]
    assert sorted(listed) == sorted(counted)


def judge_is_down(n: int, body: dict[str, Any]) -> Said | None:
    return (400, {"error": {"message": "down"}}) if stage_of(body) == "judge" else None


async def test_1_58_a_judge_that_is_down_stops_the_run_and_only_judging_is_left(
    project: Project,
) -> None:
    async with served(judge_is_down) as endpoint:
        url = f"agent.model.model_provider.base_url={endpoint.url}"
        with pytest.raises(Exception, match=r"judge: .*down"):
            await project.evaluate(url, "verify=judge", "concurrency=1")
        played = endpoint.by_stage["play"]
    rows = by_row(project, "toy/eval")
    assert set(rows) == {("error", "judge", None, 1)}
    assert len(rows) == played == 3
    async with served() as endpoint:
        url = f"agent.model.model_provider.base_url={endpoint.url}"
        report = await project.evaluate(url, "verify=judge")
        assert endpoint.by_stage == {"judge": 12, "play": 12 - played}
    assert report.score.coverage == 1.0
    assert report.health.unanswered == {"HTTP 400": 3}
    assert report.document()["health"]["unanswered"] == {"HTTP 400": 3}


async def test_1_59_a_judge_without_a_verdict_gives_no_reward(project: Project) -> None:
    def vague(n: int, body: dict[str, Any]) -> Said | None:
        return (200, completion("GRADE: MAYBE")) if stage_of(body) == "judge" else None

    settings = ("evaluation.verify=judge", "practice.epochs=1", "practice.max_failed_share=1")
    async with served(vague) as endpoint:
        report = await project.practise(endpoint.override(), *settings)
        assert endpoint.by_stage == {"judge": 72, "play": 36}  # once more each, and no distilling
    assert set(by_row(project, "toy")) == {("error", "judge", None, 1)}
    assert {row.stats["mean_reward"] for row in report.steps if row.stats} == {None}
    assert project.query("SELECT DISTINCT status, scored FROM groups") == [("too_few", 0)]


@pytest.mark.long
async def test_1_60_what_an_unknown_id_says_cannot_flood_the_record(project: Project) -> None:
    flood = json.dumps(
        {
            "operations": [
                {"op": "UPDATE", "id": "E" * 1_000_000, "text": "t" * 1_000_000},
                {"op": "DELETE", "id": "\x1b[2J"},
                *({"op": "ADD", "text": f"Name {i}: do it."} for i in range(10_000)),
            ]
        }
    )

    def flooding(n: int, body: dict[str, Any]) -> Said | None:
        return (200, completion(flood)) if stage_of(body) == "propose" else None

    async with served(flooding) as endpoint:
        await project.practise(endpoint.override(), "practice.epochs=1", "practice.batch_size=12")
    (longest, control), *_ = project.query(
        "SELECT max(length(text) + length(coalesce(reason, ''))), sum(reason LIKE '%' || char(27))"
        " FROM operations"
    )
    assert longest < 1_000
    assert control == 0
    taken = project.query(
        "SELECT slot, count(*) FROM operations WHERE source = 'propose' AND status = 'proposed'"
        " GROUP BY 1"
    )
    assert {n for _, n in taken} == {2}  # twice the lessons of a group


@pytest.mark.long
async def test_what_foreign_code_says_at_length_is_kept_in_part(project: Project) -> None:
    report = await project.evaluate(verify("megabytes"), "pass_k=3")
    assert report.failures
    assert max(map(len, report.failures)) < SAID_CHARS + 100
    assert all("more characters]" in error for error in report.failures)
    talker = await project.evaluate("verify=whoever.py:talks", "exp_id=talks")
    assert talker.score.mean == 1.0
    (lengths,) = project.query(
        "SELECT max(length(critique)), max(length(extracted)) FROM verdicts WHERE extracted > ''"
    )
    assert all(SAID_CHARS < length < SAID_CHARS + 100 for length in lengths)


async def test_1_35_answers_that_never_began_are_counted(project: Project) -> None:
    def thinking(n: int, body: dict[str, Any]) -> Said | None:
        message = {"role": "assistant", "content": "", "reasoning_content": "hm " * 500}
        return (200, completion(message, finish="length")) if n <= 3 else None

    async with served(thinking) as endpoint:
        report = await project.evaluate(f"agent.model.model_provider.base_url={endpoint.url}")
    assert report.health.mute == 3
    document = report.document()
    assert (document["health"]["mute"], document["truncated_share"]) == (3, 0.25)


async def test_requests_that_were_answered_late_are_counted(project: Project) -> None:
    def busy(n: int, body: dict[str, Any]) -> Said | None:
        return (503, {"error": {"message": "busy"}}) if n in (1, 2) else None

    async with served(busy) as endpoint:
        url = f"agent.model.model_provider.base_url={endpoint.url}"
        report = await project.evaluate(url)
    assert report.health.retried in (1, 2)  # one request may have met both
    assert report.document()["health"]["retried"] == report.health.retried
    assert report.document()["health"]["unanswered"] == {}


async def test_a_practice_without_any_answer_fails_and_names_the_cause(
    project: Project, gp: Gp
) -> None:
    async with served(lambda n, body: (200, completion(""))) as endpoint:
        report = await project.practise(endpoint.override(), "practice.epochs=1")
    said = "no rollout gave an answer, so the rewards are meaningless: 36 of 36 are empty"
    assert report.why_failed == [said]
    assert report.document()["exit"] == 1
    shown = " ".join(gp("practice", "--db", str(project.db)).out.split())
    assert f"{said} hint: raise evaluation.agent.model.model_settings.max_tokens" in shown


@pytest.mark.long
async def test_1_54_and_1_55_a_verify_function_that_misbehaves_gives_no_reward(
    tmp_path: Path, gp: Gp
) -> None:
    for how in ("raise", "none", "nan", "base", "exit"):
        project = Project(tmp_path / how)
        (project.folder / "whoever.py").write_text(WHOEVER)
        report = await project.evaluate(verify(how), "pass_k=3")
        found = by_row(project, "toy/eval")
        failed = [row for row in found if row[0] == "error"]
        assert 0 < len(failed) < len(found) == 36, how
        assert set(failed) == {("error", "verify", None, 1)}, how
        assert all(reward is not None for outcome, _, reward, _ in found if outcome == "ok")
        assert report.score.coverage == 1 - len(failed) / 36
        assert report.outcomes == {"error.verify": len(failed), "ok": 36 - len(failed)}
        assert all("whoever.py:sometimes" in error for error in report.failures)
        document = report.document()
        assert document["score"]["coverage"] == report.score.coverage < 1
        shown = gp("eval", "--db", str(project.db)).out
        assert f"(coverage {100 * report.score.coverage:.1f} %)" in shown


@pytest.mark.long
async def test_1_60_a_teacher_that_cannot_be_read_leaves_the_library_as_it_was(
    tmp_path: Path,
) -> None:
    prose = "I would add that one should be careful."
    lists = '{"lessons": "x", "operations": "y"}'
    replies = [*((stage, prose) for stage in ("compare", "propose", "merge"))]
    replies += [("propose", lists), ("merge", "{" * 50_000)]
    for n, (stage, said) in enumerate(replies):
        project = Project(tmp_path / str(n))

        def hook(_: int, body: dict[str, Any], stage: str = stage, said: str = said) -> Said | None:
            return (200, completion(said)) if stage_of(body) == stage else None

        async with served(hook) as endpoint:
            report = await project.practise(endpoint.override(), "practice.epochs=1")
            assert endpoint.by_stage[stage] % 3 == 0  # each is asked three times, then given up
        assert len(report.library) == 0
        assert project.query("SELECT DISTINCT n FROM libraries") == [(0,)]
        assert bool(report.merge_failed) is (stage == "merge")
        assert report.health.untaught == 0  # it would say the same again
        if stage == "merge":
            found = report.document()["steps"]
            steps = {step["status"]: step["stats"]["merge_failed"] for step in found}
            assert steps["merge_failed"].startswith("ReplyError: ")


def started(project: Project) -> list[tuple[str, int, int]]:
    found = project.of_kind("RunStarted")
    project.events.clear()
    return [(e.run, e.rollouts, e.done) for e in found]


async def test_what_is_there_already_is_counted_by_rollouts_not_by_steps(project: Project) -> None:
    def odd(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": "odd"}}) if n > 5 else None

    async with served(odd) as endpoint:
        url = endpoint.override()
        with pytest.raises(Exception, match="odd"):
            await project.practise(url, "practice.rollout_concurrency=1")
        with pytest.raises(Exception, match="odd"):
            await project.evaluate(url[len("evaluation.") :], "concurrency=1", "exp_id=later")
    ((settled,),) = project.query(
        "SELECT count(*) FROM v_rollouts WHERE run_id = 'toy' AND reward IS NOT NULL"
    )
    assert settled > 0
    assert started(project) == [("toy", 72, 0), ("later/eval", 12, 0)]
    await project.practise()
    await project.evaluate("exp_id=later")
    assert started(project) == [("toy", 72, settled), ("later/eval", 12, 0)]
    await project.practise()
    assert started(project) == [("toy", 72, 72)]
