"""A run that measures experiences: what it plays, what it does not say, and how it goes on."""

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_practice import Workspace
from tests.contract.command import Gp
from tests.contract.effects_project import HELD, Measured, measurable
from tests.contract.endpoint.actions import completion
from tests.contract.endpoint.simulated import stage_of
from tests.contract.help import is_command
from tests.contract.project import Hook, Said, questions, served
from tests.late import Late

sm = Late("statsmodels.api")

KEPT = "SELECT rollout_id, left_out, hex(system_sha) FROM v_rollouts WHERE run_id = ? ORDER BY 1"
OF_RUN = "SELECT count(*) FROM v_rollouts WHERE run_id = ?"


@pytest.fixture
async def project(tmp_path: Path) -> Measured:
    return await measurable(tmp_path / "p")


@pytest.mark.long
async def test_each_question_is_asked_with_pairs_of_halves(project: Measured) -> None:
    name = await project.library(20)
    report = await project.measure(library=name, k=4)
    rows = project.query(
        """SELECT r.step, r.slot, r.attempt, r.left_out, t.body, r.library_id
             FROM rollouts r JOIN texts t ON t.sha256 = r.system_sha
             JOIN branches b USING (branch_id) WHERE b.run_id = ? ORDER BY 1, 2, 3""",
        project.effect,
    )
    assert len(rows) == HELD * 4
    library = report.found.library
    everything = {e.id for e in library.experiences}
    assert {row[5] for row in rows} == {library.id}
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        left, right = (set(json.loads(row[3] or "[]")) for row in (one, other))
        assert left | right == everything
        assert not left & right
    for attempt in (0, 2):  # 32 halves for 30 questions: none is dealt twice
        assert max(Counter(row[3] for row in rows if row[2] == attempt).values()) == 1
    for *_, left_out, system, _ in rows:
        for e in library.experiences:
            assert (f"[{e.id}] {e.text}" in system) is (e.id not in json.loads(left_out or "[]"))
    unhalved = "SELECT count(*) FROM rollouts WHERE left_out IS NULL"
    assert project.query(unhalved)[0][0] > HELD

    before = project.query(KEPT, project.effect)
    more = await project.measure(library=name, k=8)
    after = project.query(KEPT, project.effect)
    assert after[: len(before)] == before, "more rollouts keep those there are"
    assert len(after) == HELD * 8
    with pytest.raises(Exception, match="can only grow"):
        await project.measure(library=name, k=4)
    assert (await project.measure(library=name)).found.k == more.found.k == 8


@pytest.mark.long
async def test_the_table_is_that_of_statsmodels_and_its_mean_is_no_score(
    project: Measured,
) -> None:
    report = await project.measure()
    # Halves, the whole and none are played question by question.
    begun = [(e.step, e.slot, e.run) for e in project.of_kind("RolloutStarted")]
    order = [place[:2] for place in begun]
    assert len(set(order)) == sum(a != b for a, b in zip(order, [(-1, -1), *order], strict=False))
    assert len(begun) == HELD * 10
    assert len({begun[order.index(place)][2] for place in set(order)}) == 3

    ids = [e.id for e in report.found.library.experiences]
    name = project.effect
    rows = project.query(
        "SELECT sample_id, left_out, reward FROM v_rollouts WHERE run_id = ?", name
    )
    sample = np.array([row[0] for row in rows])
    x = np.array([[id_ not in json.loads(row[1] or "[]") for id_ in ids] for row in rows], float)
    means = (sample[:, None] == np.unique(sample)).astype(float)
    fit = sm.OLS([row[2] for row in rows], np.column_stack([x, means])).fit(
        cov_type="cluster", cov_kwds={"groups": sample, "use_correction": False}
    )
    found = [one.effect for one in report.found.experiences]
    assert found == pytest.approx(fit.params[: len(ids)], abs=1e-8)
    assert report.found.total[0] == pytest.approx(sum(fit.params[: len(ids)]), abs=1e-8)
    document = report.document()
    assert [one["effect"] for one in document["experiences"]] == found
    assert document["schema"] == "grpo-practice.effects/1"

    workspace = Workspace(project.db)
    assert name not in workspace.runs().scores
    assert name not in workspace.run("toy").scores
    shown = workspace.run(name)
    assert not shown.scores
    assert shown.next_command == "grpo-practice experiences list --run toy"
    with pytest.raises(Exception, match="is an effect run, so it has no score"):
        workspace.compare(report.none, name)
    (known,) = workspace.compare(report.none, report.whole).contrasts
    assert (known.known, known.new) == (HELD, None)  # its questions count as known afterwards
    for options, why in (
        ({"rejudge": True, "verify": "contains"}, "a score over its rollouts has no"),
        ({}, "cannot be evaluated again"),
    ):
        with pytest.raises(Exception, match=why):
            await project.evaluate(run=name, config=None, **options)

    # No other run takes its answers.
    ((text,),) = project.query(
        """SELECT t.body FROM rollouts r JOIN branches USING (branch_id)
             JOIN texts t ON t.sha256 = r.system_sha
            WHERE run_id = ? AND step = 0 AND slot = 0 AND attempt = 0""",
        name,
    )
    told = f"agent.agent.instructions={json.dumps(text)}"
    other = await project.evaluate("exp_id=told", "data.dataset=held", told, "pass_k=8")
    assert other.requests.new == HELD * 8


@pytest.mark.long
async def test_whole_and_none_are_the_evaluations_they_would_be_alone(project: Measured) -> None:
    report = await project.measure(k=16)
    sha = project.effect.rpartition("/")[2]
    assert (report.whole, report.none) == (
        f"toy/eval/{sha}/data=held",
        "toy/eval/Le3b0c442/data=held",
    )
    assert project.effect == f"toy/effect/{sha}"
    assert len(report.measured.questions) == HELD
    # Practice would choose its best step by these very runs.
    await project.practise("practice.select_dataset=held", "evaluation.pass_k=2")
    for name in (report.whole, report.none):
        assert project.query(OF_RUN, name) == [(2 * HELD,)]


@pytest.mark.long
async def test_the_dataset_that_libraries_are_chosen_by_is_the_default(project: Measured) -> None:
    await project.practise("practice.select_dataset=held", "evaluation.pass_k=2")
    report = await project.measure(dataset=None)
    assert report.found.dataset == "held"
    # Both were complete: practice had made them to choose by.
    for name in (report.whole, report.none):
        assert project.query(OF_RUN, name) == [(2 * HELD,)]
    assert any("already complete, and not played again" in text for text in project.notices)
    # With the answers of the whole library, it would be compared with itself.
    reused = project.query("SELECT rebinds FROM branches WHERE run_id = ?", project.effect)
    assert reused == [(None,)]


@pytest.mark.long
async def test_after_a_stop_only_what_was_in_flight_is_asked(
    project: Measured, tmp_path: Path
) -> None:
    whole = await measurable(tmp_path / "whole")
    report = await whole.measure()
    for requests in (7, 100, 251):
        with pytest.raises(Exception, match=f"{requests} requests spent so far"):
            await project.measure(max_requests=requests)
    made = "SELECT count(*) FROM calls JOIN branches USING (branch_id) WHERE run_id <> 'toy'"
    prompts = """SELECT run_id, step, slot, attempt, left_out, hex(system_sha), reward
                   FROM v_rollouts ORDER BY 1, 2, 3, 4"""
    for _ in range(2):
        assert (await project.measure()).document() == report.document()
        assert project.query(made) == whole.query(made)
        assert project.query(prompts) == whole.query(prompts)


async def test_questions_practised_on_or_not_to_be_scored_are_left_out(project: Measured) -> None:
    odd = {"question": "Which one?", "answer": None}
    project.upload("mixed", 24, 24 + HELD, *questions(12)[6:], odd)  # new ones, 6 of practice
    report = await project.measure(dataset="mixed", k=2)
    assert (report.found.left_out, report.found.questions) == (7, HELD)
    assert len(report.measured.questions) == HELD
    practised = {row["question"] for row in questions(12)}
    asked = project.query(
        """SELECT DISTINCT question FROM v_rollouts JOIN samples USING (sample_id)
            WHERE run_id = ?""",
        project.effect,
    )
    assert not practised & {question for (question,) in asked}
    assert any("7 questions of mixed left out" in note for note in report.notes), report.notes
    assert len([text for text in project.notices if "cannot be" in text]) == 1
    again = await project.measure(dataset="mixed", k=2)
    assert again.document() == report.document()


async def test_what_cannot_be_measured_is_refused(project: Measured) -> None:
    project.upload("copy", 12, 24)
    project.upload("part", 20, 40)
    cases: list[tuple[dict[str, Any], str]] = [
        *(({"k": k}, f"-k {k} is not a positive even number") for k in (7, 0, -2, 1)),
        ({"dataset": "test"}, "toy is evaluated on test, so a library pruned"),
        ({"dataset": "copy"}, "toy is evaluated on copy"),
        ({"dataset": "part"}, "toy is evaluated on 4 of the 20 questions of part"),
        ({"dataset": "train"}, "practised on all questions of train"),
        ({"dataset": None}, r"no practice.select_dataset, and no other"),
        ({"library": "nobody"}, "there is no run 'nobody'"),
        ({"library": "L1"}, "has 0 experiences.* for 2 to 63"),
    ]
    for options, why in cases:
        with pytest.raises(Exception, match=why):
            await project.measure(**options)
    assert project.query("SELECT run_id FROM runs") == [("toy",)]
    for n in (1, 64):
        with pytest.raises(Exception, match=f"has {n} experience.* for 2 to 63"):
            await project.measure(library=await project.library(n))
    await project.evaluate("data.dataset=held", "exp_id=toy")
    with pytest.raises(Exception, match="toy is evaluated on held"):
        await project.measure(library="toy")


@pytest.mark.long
async def test_a_forecast_says_how_exact_a_measurement_will_be(project: Measured) -> None:
    def forecast(k: int | None = None, library: str = "toy") -> Any:
        return Workspace(project.db).forecast_effects(library, k=k, dataset="held", env={})

    first = forecast(4)
    calls = {line.part: line.calls.high for line in first.stages}
    assert calls == {"effect": HELD * 4, "full": HELD, "none": HELD}
    low, high = first.effect.se
    m = len(Workspace(project.db).experiences("toy").library.experiences)
    # From the same effect on all questions to one question for each experience, at σ² = 0.
    assert low == pytest.approx(2 * (0.05 / (HELD * 4)) ** 0.5)
    assert high == pytest.approx(((4 + 2 * (m - 1)) / m / (HELD * 4)) ** 0.5)
    assert not first.effect.measured
    assert first.document()["effect"]["rollouts"] == HELD * 4

    found = await project.measure(k=4)
    errors = [one.se for one in found.found.experiences]
    for k in (4, 16):
        planned = forecast(k).effect
        assert planned.measured
        # Four times the rollouts: half the noise; but no more questions, which differ as before.
        wider = ((k + 2 * (m - 1)) / (4 + 2 * (m - 1)) * 4 / k) ** 0.5
        expected = (min(errors) * (4 / k) ** 0.5, max(errors) * wider)
        assert planned.se == pytest.approx(expected, abs=1e-9)
    again = [one.se for one in (await project.measure(k=16)).found.experiences]
    assert all(planned.se.low < se < planned.se.high for se in again)

    # It rests on what the library did question by question, where that was evaluated.
    await project.practise("exp_id=tested", "practice.do_eval=true", "evaluation.pass_k=4")
    planned = forecast(library="tested").effect
    assert planned.measured
    report = await project.measure(library="tested")
    assert all(planned.se.low < one.se < planned.se.high for one in report.found.experiences)


SCORE = """
def score(sample, timeout_score=0, **kwargs):
    if "out of order" in sample.response:
        raise ValueError("no answer")
    return {"reward": float(sample.response == sample.correct_answer)}
"""
ANSWERS = {row["question"]: str(row["answer"]) for row in questions(24 + HELD)}


def half_right(fails: bool, share: float) -> Hook:
    """Answer half of the requests right; of the right or wrong ones, a share with Rule 3 fails."""

    def hook(n: int, body: dict[str, Any]) -> Said | None:
        if stage_of(body) != "play":
            return None
        system, question = (message["content"] for message in body["messages"])
        draw = zlib.crc32(json.dumps(body).encode()) % 1_000 / 500
        is_right, place = draw < 1, draw % 1
        said = ANSWERS[question] if is_right else "wrong"
        if "Rule 3" in system and is_right == fails and place < share:
            said = "out of order"
        return 200, completion(said)

    return hook


async def with_failures(project: Measured, hook: Hook) -> tuple[str, Any]:
    """Measure four experiences with 16 rollouts of each question."""
    (project.folder / "score.py").write_text(SCORE)
    name = await project.library(4)
    async with served(hook) as endpoint:
        verify = f"evaluation.verify={project.folder / 'score.py'}:score"
        sets = [endpoint.override(), verify, "practice.max_failed_share=0.7"]
        return name, await project.measure(library=name, k=16, sets=sets)


@pytest.mark.long
async def test_failed_rollouts_are_shown_and_an_effect_made_by_them_is_marked(
    project: Measured, gp: Gp
) -> None:
    name, report = await with_failures(project, half_right(fails=False, share=0.9))
    failed = project.query(
        "SELECT left_out FROM v_rollouts WHERE run_id = ? AND reward IS NULL", project.effect
    )
    assert len(failed) == report.found.planned - report.found.scored > 60
    assert not any('"E3"' in (left_out or "") for (left_out,) in failed)
    one = report.found.experiences[2]
    assert one.failed == pytest.approx((len(failed) / (HELD * 8), 0.0))
    assert (one.sign, one.supported) == (1, False)
    as_0, as_1 = one.bounds
    assert as_0.effect == pytest.approx(0.0, abs=0.1)
    assert as_1.effect > one.effect > 0.2
    assert [e.supported for e in report.found.experiences] == [True, True, False, True]
    document = report.document()["experiences"][2]
    assert document["supported"] is False
    assert document["failed"] == [one.failed[0], 0.0]
    assert document["bounds"][0]["effect"] == as_0.effect

    verify = f"evaluation.verify={project.folder / 'score.py'}:score"
    sets = ("--set", verify, "--set", "practice.max_failed_share=0.7", "--db", str(project.db))
    ran = gp("experiences", "effect", "--run", name, "--dataset", "held", "-k", "16", *sets)
    said = " ".join(ran.out.split())
    assert f"E3 +{100 * one.effect:.1f} ?" in said, ran.err
    assert f"E3 {one.failed[0]:.1%} 0.0% {100 * as_0.effect:+.1f}" in said
    assert "not supported (?): E3" in said
    assert f"{len(failed)} rollouts failed" in said
    assert "with or without the whole library failed: in the worst and the best case" in said
    about = ("report", project.effect.partition("/")[0], "-o", "-", "--db", str(project.db))
    if is_command(about):
        assert gp(*about).out.count(" ? (") == 1


@pytest.mark.long
async def test_what_looks_harmful_since_right_answers_fail_is_not_pruned(
    project: Measured,
) -> None:
    name, report = await with_failures(project, half_right(fails=True, share=0.7))
    one = report.found.experiences[2]
    assert one.p_harm > 0.99
    assert (one.sign, one.supported, one.harmful) == (-1, False, False)
    assert report.next_command == "grpo-practice eval --run rules4 --arms none,full"
    assert not Workspace(project.db).prune(name).removed
