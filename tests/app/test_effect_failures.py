"""Effects of experiences where rollouts failed: shares, bounds, and what they do not support."""

import json
import zlib
from pathlib import Path
from typing import Any, Literal

import pytest

from grpo_practice import Workspace
from grpo_practice.cli.terminal.effects_view import show_effects
from grpo_practice.reports.effects import EffectsReport
from grpo_practice.see.report import _effect
from grpo_practice.sim import stage_of
from grpo_practice.sim.questions import solve
from tests.app.test_effect import HELD, Measured, measurable
from tests.contract.endpoint.actions import completion
from tests.contract.project import Hook, served

SCORE = """
def score(sample, timeout_score=0, **kwargs):
    if "out of order" in sample.response:
        raise ValueError("no answer")
    return {"reward": float(sample.response == sample.correct_answer)}
"""


def half_right(*, rule: str, fails: Literal["right", "wrong"], share: float) -> Hook:
    """Answer half of the requests right; a share of one half fails if it is shown the rule."""

    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if stage_of(body) != "play":
            return None
        system, question = (message["content"] for message in body["messages"])
        draw = zlib.crc32(json.dumps(body).encode()) % 1_000 / 500
        is_right, place = draw < 1, draw % 1
        said = str(solve(question)) if is_right else "wrong"
        if rule in system and is_right == (fails == "right") and place < share:
            said = "out of order"
        return 200, completion(said)

    return hook


@pytest.fixture
async def project(tmp_path: Path) -> Measured:
    project = await measurable(tmp_path)
    (project.folder / "score.py").write_text(SCORE)
    project.name = project.library(4)
    return project


async def measured(project: Measured, hook: Hook) -> EffectsReport:
    """Measure four experiences with 16 rollouts of each question."""
    async with served(hook) as endpoint:
        verify = f"evaluation.verify={project.folder / 'score.py'}:score"
        sets = [endpoint.override(), verify, "practice.max_failed_share=0.7"]
        return await project.measure(library=project.name, k=16, sets=sets)


async def test_failed_rollouts_are_shown_and_an_effect_made_by_them_is_marked(
    project: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    report = await measured(project, half_right(rule="Rule 3", fails="wrong", share=0.9))
    failed = project.query(
        "SELECT left_out FROM v_rollouts WHERE run_id = ? AND reward IS NULL", project.effect
    )
    assert len(failed) == report.found.planned - report.found.scored > 60
    assert not any('"E3"' in (left_out or "") for (left_out,) in failed)
    one = report.found.experiences[2]
    assert one.failed == pytest.approx((len(failed) / (HELD * 8), 0.0))
    assert one.effect is not None
    assert (one.sign, one.supported) == (1, False)
    as_0, as_1 = one.bounds
    assert as_0.effect is not None
    assert as_1.effect is not None
    assert as_0.effect == pytest.approx(0.0, abs=0.1)
    assert as_1.effect > one.effect > 0.2
    assert [e.supported for e in report.found.experiences] == [True, True, False, True]
    show_effects(report)
    said = " ".join(capsys.readouterr().out.split())
    assert f"E3 +{100 * one.effect:.1f} ?" in said
    assert f"E3 {one.failed[0]:.1%} 0.0% {100 * as_0.effect:+.1f}" in said
    assert "not supported (?): E3" in said
    assert f"{len(failed)} rollouts failed" in said
    assert "with the whole library or without any failed: in the worst and the best case" in said
    assert [" ? (" in _effect(e) for e in report.found.experiences] == [False, False, True, False]
    document = report.document()["experiences"][2]
    assert document["supported"] is False
    assert document["failed"] == {"with": one.failed[0], "without": 0.0}
    assert document["failed_as"]["0"]["effect"] == as_0.effect


async def test_what_looks_harmful_since_right_answers_fail_is_not_pruned(
    project: Measured,
) -> None:
    report = await measured(project, half_right(rule="Rule 3", fails="right", share=0.7))
    one = report.found.experiences[2]
    assert (one.p_harm or 0) > 0.99
    assert (one.sign, one.supported, one.harmful) == (-1, False, False)
    assert report.next_command == "grpo-practice eval --run toy --arms none,full"
    assert not Workspace(project.db).prune(project.name).gone
