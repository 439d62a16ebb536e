"""A run that measures experiences: what it plays, what it does not say, and how it goes on."""

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from grpo_practice.app.effect_run import EffectJob, EffectRequest, prepare_effect, run_effect
from grpo_practice.errors import (
    ConfigError,
    DataError,
    FingerprintError,
    PausedError,
)
from grpo_practice.events import Notice, RolloutStarted
from grpo_practice.forecast.power import planned_power
from grpo_practice.llm.budget import NO_CAPS, Caps
from grpo_practice.prompts.system import system_prompt
from grpo_practice.reports.compared import compare_evaluations
from grpo_practice.reports.effects import EffectsReport
from grpo_practice.reports.known_scores import known_score
from grpo_practice.reports.stored_runs import run_report, runs_report
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import runs
from grpo_practice.types import Experience, Library, Sample
from tests.app.project import Project, finished
from tests.contract.project import served

HELD = 30


class Measured(Project):
    """A project that has practised, with a dataset that is neither practised nor evaluated on."""

    name = "toy"
    """Library that is measured."""

    def effect_job(self, store: Store, **request: Any) -> EffectJob:
        given = {"dataset": "held", "env": {}, "caps": self.caps, **request}
        return prepare_effect(self.session(store), EffectRequest(**given))

    async def measure(self, **request: Any) -> EffectsReport:
        with Store(self.db) as store:
            return await run_effect(self.effect_job(store, **request))

    def upload(self, name: str, first: int, end: int) -> None:
        with Store(self.db) as store:
            store.add_dataset(name, questions(end, 0)[first:end], origin="sim", replace=True)

    def library(self, n: int) -> str:
        """Store a library of so many experiences; return its name."""
        rules = [Experience(i, f"Rule {i}: say {i}.") for i in range(1, n + 1)]
        with Store(self.db) as store:
            branch = store.read(branches.load, store.read(runs.get, "toy").head_branch)
            return f"L{store.put_library(branch, Library(tuple(rules), n + 1)).id}"

    @property
    def effect(self) -> str:
        ((name,),) = self.query("SELECT run_id FROM runs WHERE role = 'effect'")
        return str(name)


async def measurable(tmp_path: Path) -> Measured:
    made = await finished(tmp_path / "p")
    project = Measured(made.folder)  # the database is there: uploads are the same again
    project.upload("held", 24, 24 + HELD)
    return project


@pytest.fixture
async def project(tmp_path: Path) -> Measured:
    return await measurable(tmp_path)


async def test_each_question_is_asked_with_pairs_of_halves(project: Measured) -> None:
    report = await project.measure(library=project.library(20), k=4)
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
        shown = tuple(e for e in library.experiences if e.id not in json.loads(left_out or "[]"))
        instructions = "Solve it. Put the answer in \\boxed{}."
        assert system == system_prompt(instructions, Library(shown))
    assert project.query("SELECT count(*) FROM rollouts WHERE left_out IS NULL")[0][0] > HELD


async def test_the_table_is_that_of_statsmodels(project: Measured) -> None:
    report = await project.measure()
    ids = [e.id for e in report.found.library.experiences]
    rows = project.query(
        "SELECT sample_id, left_out, reward FROM v_rollouts WHERE run_id = ?", project.effect
    )
    sample = np.array([row[0] for row in rows])
    x = np.array([[id_ not in json.loads(row[1] or "[]") for id_ in ids] for row in rows], float)
    means = (sample[:, None] == np.unique(sample)).astype(float)
    fit = sm.OLS([row[2] for row in rows], np.column_stack([x, means])).fit(
        cov_type="cluster", cov_kwds={"groups": sample, "use_correction": False}
    )
    found = [one.effect for one in report.found.experiences]
    assert found == pytest.approx(fit.params[: len(ids)], abs=1e-8)
    assert report.found.total is not None
    assert report.found.total[0] == pytest.approx(sum(fit.params[: len(ids)]), abs=1e-8)
    document = report.document()
    assert [one["effect"] for one in document["experiences"]] == found
    assert document["schema"] == "grpo-practice.effects/1"


async def test_whole_and_none_are_the_evaluations_they_would_be_alone(project: Measured) -> None:
    report = await project.measure(k=16)
    library = report.found.library
    sha = project.effect.rpartition("/")[2]
    assert (report.whole, report.none) == (
        f"toy/eval/{sha}/data=held",
        "toy/eval/Le3b0c442/data=held",
    )
    assert project.effect == f"toy/effect/{sha}"
    counts = dict(project.query("SELECT run_id, count(*) FROM v_rollouts GROUP BY 1"))
    assert counts[report.whole] == counts[report.none] == 2 * HELD
    # Practice would choose its best step by these very runs.
    again = await project.practise("practice.select_dataset=held", "evaluation.pass_k=2")
    assert again.requests.new == 0 or library.id
    names = {name for (name,) in project.query("SELECT run_id FROM runs")}
    assert report.whole in names
    asked = project.query("SELECT count(*) FROM v_rollouts WHERE run_id = ?", report.whole)
    assert asked[0][0] == 2 * HELD
    assert report.measured is not None
    assert len(report.measured.questions) == HELD


async def test_halves_whole_and_none_are_played_question_by_question(project: Measured) -> None:
    await project.measure()
    begun = [(e.step, e.slot, e.run) for e in project.events if isinstance(e, RolloutStarted)]
    begun = [place for place in begun if place[2] != "toy"]
    order = [place[:2] for place in begun]
    assert len(set(order)) == sum(a != b for a, b in zip(order, [(-1, -1), *order], strict=False))
    assert len(begun) == HELD * 10
    runs_in_order = [run for *_, run in begun]
    firsts = {order.index(place): runs_in_order[order.index(place)] for place in set(order)}
    assert len(set(firsts.values())) == 3


@pytest.mark.parametrize("requests", [7, 100, 251])
async def test_after_a_stop_only_what_was_in_flight_is_asked(
    project: Measured, tmp_path: Path, requests: int
) -> None:
    whole = Measured((await finished(tmp_path / "whole")).folder)
    whole.upload("held", 24, 24 + HELD)
    report = await whole.measure()
    project.caps = Caps(requests=requests)
    with pytest.raises(PausedError):
        await project.measure()
    project.caps = NO_CAPS
    again = await project.measure()
    assert again.document() == report.document()
    made = "SELECT count(*) FROM calls JOIN branches USING (branch_id) WHERE run_id <> 'toy'"
    assert project.query(made) == whole.query(made)
    prompts = """SELECT run_id, step, slot, attempt, left_out, hex(system_sha), reward
                   FROM v_rollouts ORDER BY 1, 2, 3, 4"""
    assert project.query(prompts) == whole.query(prompts)
    before = len(project.query("SELECT 1 FROM calls"))
    assert (await project.measure()).document() == report.document()
    assert len(project.query("SELECT 1 FROM calls")) == before


@pytest.mark.parametrize(
    ("place", "n"), [("rollouts", 5), pytest.param("rollouts", 620, marks=pytest.mark.long)]
)
async def test_after_a_kill_only_what_was_in_flight_is_asked(
    project: Measured, place: str, n: int
) -> None:
    async with served() as seen:
        words = ["experiences", "effect", "--dataset", "held", "--set", seen.override()]
        killed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.endurance.victim", place, str(n), "-"),
            *(*words, "--db", str(project.db)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await killed.communicate()
        assert killed.returncode == -signal.SIGKILL, said.decode()
        made = "SELECT count(*) FROM calls JOIN branches USING (branch_id) WHERE run_id <> 'toy'"
        ((answered,),) = project.query(made)
        before = len(seen.bodies)
        report = await project.measure(sets=[seen.override()])
        assert len(seen.bodies) - before == HELD * 10 - answered
        assert (await project.measure(sets=[seen.override()])).document() == report.document()
        assert len(seen.bodies) - before == HELD * 10 - answered
    assert report.found.scored == HELD * 8


async def test_its_mean_is_no_score(project: Measured) -> None:
    report = await project.measure()
    name = project.effect
    with Store(project.db) as store:
        assert name not in runs_report(store).scores
        assert name not in run_report(store, "toy").scores
        shown = run_report(store, name)
        assert not shown.scores
        assert shown.next_command == "grpo-practice experiences list --run toy"
        assert known_score(store, name) is None
        with pytest.raises(ConfigError, match="is an effect run: it has no score"):
            compare_evaluations(store, [report.none, name])
        # Its noise is that of 63 agents; a forecast for evaluations does not rest on it.
        measured = planned_power(store, "toy", 100, 4).measured
        assert not measured
        latest = store.read(runs.latest, ["practice", "eval"])
        assert latest is not None
        assert latest.name == "toy"
    with pytest.raises(ConfigError, match="its rollouts have no score"):
        await project.evaluate(run=name, rejudge=True, verify="contains", config=None)
    with pytest.raises(ConfigError, match="no evaluation to be asked for again"):
        await project.evaluate(run=name, config=None)


async def test_no_other_run_takes_its_answers(project: Measured) -> None:
    await project.measure()
    first = project.query(
        """SELECT hex(r.system_sha) FROM rollouts r JOIN branches USING (branch_id)
            WHERE run_id = ? AND step = 0 AND slot = 0 AND attempt = 0""",
        project.effect,
    )[0][0]
    ((text,),) = project.query("SELECT body FROM texts WHERE hex(sha256) = ?", first)
    instructions = text.replace("{", "{{").replace("}", "}}") if "${" in text else text
    report = await project.evaluate(
        "data.dataset=held", f"agent.agent.instructions={json.dumps(instructions)}", "pass_k=8"
    )
    assert report.requests.new == HELD * 8


async def test_its_questions_count_as_known_afterwards(project: Measured) -> None:
    report = await project.measure(k=8)
    with Store(project.db) as store:
        found = compare_evaluations(store, [report.none, report.whole])
    assert found.contrasts[0].known == HELD
    assert found.contrasts[0].new is None


async def test_questions_practised_on_are_left_out(project: Measured) -> None:
    project.upload("mixed", 6, 12 + HELD)  # 6 of practice, 12 of the test set, then new ones
    report = await project.measure(dataset="mixed")
    assert (report.found.left_out, report.found.questions) == (6, HELD)
    assert report.measured is not None
    assert len(report.measured.questions) == HELD
    practised = {q.question for q in questions(12, 0)}
    asked = project.query(
        """SELECT DISTINCT question FROM v_rollouts JOIN samples USING (sample_id)
            WHERE run_id = ?""",
        project.effect,
    )
    assert not practised & {question for (question,) in asked}
    assert any("6 questions of mixed left out" in note for note in report.notes)
    again = await project.measure(dataset="mixed")
    assert again.document() == report.document()


async def test_more_rollouts_keep_those_there_are(project: Measured) -> None:
    await project.measure(k=4)
    before = project.query(
        "SELECT rollout_id, left_out, hex(system_sha) FROM v_rollouts WHERE run_id = ? ORDER BY 1",
        project.effect,
    )
    report = await project.measure(k=8)
    after = project.query(
        "SELECT rollout_id, left_out, hex(system_sha) FROM v_rollouts WHERE run_id = ? ORDER BY 1",
        project.effect,
    )
    assert after[: len(before)] == before
    assert len(after) == HELD * 8
    with pytest.raises(FingerprintError, match="can only grow"):
        await project.measure(k=4)
    assert (await project.measure()).found.k == report.found.k == 8


@pytest.mark.parametrize("k", [7, 0, -2, 1])
async def test_an_odd_number_of_rollouts_is_refused(project: Measured, k: int) -> None:
    with pytest.raises(ConfigError, match=f"-k {k}: a question's rollouts are pairs"):
        await project.measure(k=k)
    assert project.query("SELECT count(*) FROM runs WHERE role = 'effect'") == [(0,)]


@pytest.mark.parametrize("n", [0, 1, 64])
async def test_too_few_or_too_many_experiences_are_refused(project: Measured, n: int) -> None:
    with pytest.raises(ConfigError, match=f"has {n} experience.* of 2 to 63 together"):
        await project.measure(library=project.library(n))


async def test_what_is_evaluated_on_is_refused(project: Measured) -> None:
    with pytest.raises(ConfigError, match="toy is evaluated on test: a library that was pruned"):
        await project.measure(dataset="test")
    project.upload("copy", 12, 24)
    with pytest.raises(ConfigError, match="toy is evaluated on copy"):
        await project.measure(dataset="copy")
    await project.evaluate("data.dataset=held", "exp_id=toy")
    with pytest.raises(ConfigError, match="toy is evaluated on held"):
        await project.measure()


async def test_no_question_left_or_no_dataset_is_refused(project: Measured) -> None:
    with pytest.raises(DataError, match="practised on all questions of train"):
        await project.measure(dataset="train")
    with pytest.raises(ConfigError, match=r"no practice.select_dataset, and no other"):
        await project.measure(dataset=None)
    with pytest.raises(ConfigError, match="there is no run 'nobody'"):
        await project.measure(library="nobody")
    assert project.query("SELECT count(*) FROM runs") == [(1,)]


async def test_the_dataset_that_libraries_are_chosen_by_is_the_default(project: Measured) -> None:
    await project.practise("practice.select_dataset=held", "evaluation.pass_k=2")
    report = await project.measure(dataset=None)
    assert report.found.dataset == "held"
    # Both were complete: practice had made them to choose by.
    counts = dict(project.query("SELECT run_id, count(*) FROM v_rollouts GROUP BY 1"))
    assert counts[report.whole] == counts[report.none] == 2 * HELD
    notices = [e.text for e in project.events if isinstance(e, Notice)]
    assert any("complete, and not played again together" in text for text in notices)
    # With the answers of the whole library, it would be compared with itself.
    reused = project.query("SELECT rebinds FROM branches WHERE run_id = ?", project.effect)
    assert reused == [(None,)]


async def test_a_question_that_cannot_be_scored_is_said_once_and_left_out(
    project: Measured,
) -> None:
    rows = questions(24 + HELD, 0)[24:]
    with Store(project.db) as store:
        store.add_dataset("odd", [*rows, Sample("Which one?")], origin="x", replace=False)
    report = await project.measure(dataset="odd")
    assert (report.found.questions, report.found.left_out) == (HELD, 1)
    assert report.measured is not None
    assert len(report.measured.questions) == HELD
    notices = [e.text for e in project.events if isinstance(e, Notice) and "cannot be" in e.text]
    assert len(notices) == 1
    assert (await project.measure(dataset="odd")).document() == report.document()
