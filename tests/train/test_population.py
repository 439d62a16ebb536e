"""A population: who takes over whose weights, how it goes on, and what it refuses."""

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.events import Notice
from grpo_practice.train.population import first_members, next_members
from grpo_practice.train.space import Choice, SearchRange, Space
from grpo_practice.train.tune_report import TuneReport, copied_from
from tests.train.fake_trainer import FakeTrainer, KilledError, TrainProject

SPACE: Space = {
    "learning_rate": SearchRange(1e-6, 1e-4, log=True),
    "group_size": SearchRange(2, 8),
    "loss": Choice(["grpo", "dapo", "bnpo"]),
}
SEARCH = (
    "practice.select_dataset=s.jsonl",
    "evaluation.verify=contains",
    "evaluation.data.dataset=test.jsonl",
    "train.eval_every=2",
    "train.tune.seed=5",
    "train.tune.space={learning_rate: {low: 1.0e-6, high: 1.0e-4, log: true}, beta: [0.0, 0.1]}",
)


def make_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    made = TrainProject(folder, monkeypatch)
    (made.folder / "test.jsonl").write_text('{"question": "t?", "answer": "1"}\n')
    return made


def names(count: int) -> list[str]:
    return [f"s/tune/{n}" for n in range(count)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    return make_project(tmp_path / "p", monkeypatch)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=12), st.integers())
def test_the_worst_quarter_takes_over_what_is_better(scores: list[float], seed: int) -> None:
    members = first_members(SPACE, names(len(scores)), seed)
    scored = dict(enumerate(scores))
    after = next_members(members, scored, 10, SPACE, seed)
    assert after == next_members(members[::-1], scored, 10, SPACE, seed)
    assert [member.number for member in after] == list(range(len(scores)))
    changed = [member for member in after if copied_from(member.phases)]
    quarter = math.ceil(len(scores) / 4)
    assert len(changed) <= quarter
    for member in changed:
        copied = copied_from(member.phases)
        assert copied is not None
        best, step = int(copied[0].rpartition("/")[2]), copied[1]
        assert (step, scored[best] > scored[member.number]) == (9, True)
        assert sum(score > scored[best] for score in scores) < quarter
        assert sum(score < scored[member.number] for score in scores) < quarter
        assert member.phases[:-1] == members[best].phases
        assert 1e-6 <= member.values["learning_rate"] <= 1e-4
        assert member.values["group_size"] in range(2, 9)
        assert member.values["loss"] in SPACE["loss"].ends


def test_settings_are_drawn_from_the_whole_space_and_change_a_little() -> None:
    members = first_members(SPACE, names(200), 0)
    rates = sorted(member.values["learning_rate"] for member in members)
    assert rates[50] == pytest.approx(10**-5.5, rel=0.5)  # factors count, not differences
    assert {member.values["group_size"] for member in members} == set(range(2, 9))
    scores = {member.number: float(member.number) for member in members}
    moved = [m for m in next_members(members, scores, 5, SPACE, 0) if len(m.phases) > 1]
    assert len(moved) == 50
    near = 0
    for member in moved:
        before, now = (phase.values["learning_rate"] for phase in member.phases)
        near += now / before in (pytest.approx(0.8), pytest.approx(1.2))
    assert 25 < near < 48  # one in four is drawn afresh


@pytest.mark.parametrize(("value", "near"), [(2, {2, 3}), (5, {4, 6}), (8, {6, 8})])
def test_a_whole_number_moves_by_one_at_least(value: int, near: set[int]) -> None:
    part = SearchRange(2, 8)
    assert {part.near(value, Random(seed)) for seed in range(20)} == near


def test_a_value_of_a_list_moves_to_its_neighbour() -> None:
    part = Choice(["a", "b", "c"])
    assert {part.near("a", Random(seed)) for seed in range(20)} == {"a", "b"}
    assert {part.near("b", Random(seed)) for seed in range(20)} == {"a", "c"}


def test_who_has_no_score_is_out() -> None:
    members = first_members(SPACE, names(3), 0)
    assert [m.number for m in next_members(members, {0: 1.0, 2: 1.0}, 5, SPACE, 0)] == [0, 2]


@pytest.mark.long
def test_weights_are_taken_over_on_a_branch_and_the_best_is_tested_once(
    project: TrainProject,
) -> None:
    fake = FakeTrainer()
    report = project.populate(4, fake, *SEARCH)
    taken = [trial for trial in report.trials if trial.source]
    assert taken
    for trial in taken:
        before, now = trial.phases[-2:]
        branches = project.query(
            "SELECT parent_id NOTNULL, cause, identity FROM branches"
            " WHERE run_id = ? AND from_step = ? AND identity LIKE '%train.origin%'",
            trial.run,
            now.step,
        )
        assert [(parent, cause) for parent, cause, _ in branches] == [(1, "restart")]
        assert f"{before.run} after step {now.step - 1} (" in branches[0][2]
        answers = "SELECT slot, attempt, response FROM v_rollouts JOIN rollout_bodies USING"
        answers += " (rollout_id) WHERE run_id = ? AND step = ? ORDER BY 1, 2"
        own = project.query(answers, trial.run, now.step)
        assert own
        source = next(t for t in report.trials if t.run == before.run)
        if source.phases[-1].step <= now.step:  # its weights of then are still on its line
            assert own == project.query(answers, before.run, now.step)
        start = [plan for plan in fake.plans if plan.resume is not None]
        folder = before.run.replace("/", ".")
        step = f"step-{now.step - 1:06}"
        assert any(folder in str(p.resume) and step in str(p.resume) for p in start)
    best = report.best
    assert best is not None
    assert best.score == max(trial.score or 0 for trial in report.trials)
    tested = "SELECT run_id, parent_run_id FROM runs WHERE run_id LIKE '%test=%'"
    assert project.query(tested) == [(report.tested, best.run)]
    told = [e.text for e in project.events if isinstance(e, Notice) and "takes over" in e.text]
    assert len(told) == sum(
        "train.origin" in i for (i,) in project.query("SELECT identity FROM branches")
    )
    again = FakeTrainer()
    assert project.populate(4, again, *SEARCH).document() == report.document()
    assert again.plans == []


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> TuneReport:
    with pytest.MonkeyPatch.context() as patch:
        made = make_project(tmp_path_factory.mktemp("whole") / "p", patch)
        return made.populate(4, None, *SEARCH)


KILLS = [(kind, step) for kind in ("kill", "kill_unsaved", "kill_unscored") for step in range(6)]
"""When a trainer is killed: within a step, before its checkpoint, before its score."""


@pytest.mark.long
@pytest.mark.parametrize(("kind", "step"), KILLS)
def test_a_population_that_is_killed_again_and_again_comes_out_as_one_that_was_not(
    project: TrainProject,
    expected: TuneReport,
    kind: str,
    step: int,
) -> None:
    kills, killer = 0, dict[str, Any]({kind: step})
    for _ in range(4):  # once in each member, as far as the step is trained at all
        try:
            project.populate(4, FakeTrainer(**killer), *SEARCH)
        except KilledError:
            kills += 1
    report = project.populate(4, None, *SEARCH)
    assert report.document() == expected.document()
    assert kills == (4 if step % 2 or kind == "kill" else 0)


@pytest.mark.long
def test_a_population_can_train_longer(project: TrainProject, expected: TuneReport) -> None:
    project.populate(4, None, *SEARCH, "train.steps=4")
    fake = FakeTrainer()
    assert project.populate(4, fake, *SEARCH).document() == expected.document()
    assert set(fake.trained) == {4, 5}


def test_a_member_that_cannot_go_on_is_out_and_stays_out(project: TrainProject) -> None:
    fake = FakeTrainer()
    fake.loss = lambda step: float("nan") if step == 2 and len(fake.plans) == 6 else 0.5
    report = project.populate(4, fake, *SEARCH)
    assert [trial.state for trial in report.trials].count("failed") == 1
    assert report.best is not None
    out = next(trial for trial in report.trials if trial.state == "failed")
    assert f"{out.run} has dropped out" in " ".join(
        event.text for event in project.events if isinstance(event, Notice)
    )
    assert project.populate(4, None, *SEARCH).best == report.best


def test_no_member_that_works_is_a_result_too(project: TrainProject) -> None:
    report = project.populate(2, FakeTrainer(loss=lambda step: float("inf")), *SEARCH)
    assert ([t.state for t in report.trials], report.best) == (["failed"] * 2, None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("train.eval_every=null", "needs train.steps and train.eval_every"),
        ("train.steps=null", "needs train.steps and train.eval_every"),
        ("train.scheduler=linear", "the search sets the rate"),
        ("train.tune.space={lora.r: [4, 8]}", "cannot be taken over"),
        ("train.tune.space={update_epochs: [1, 2]}", "cannot be taken over"),
        ("practice.select_dataset=null", "eval_every needs practice.select_dataset"),
    ],
)
def test_a_population_that_could_not_work_is_refused(
    project: TrainProject, more: str, message: str
) -> None:
    fake = FakeTrainer()
    with pytest.raises(ConfigError, match=message):
        project.populate(4, fake, *SEARCH, more)
    assert fake.plans == []


def test_another_population_is_another_search(project: TrainProject) -> None:
    sets = (*SEARCH, "train.steps=2")
    project.populate(2, None, *sets)
    for members, more in ((3, ""), (2, "train.tune.seed=1"), (2, "train.eval_every=1")):
        with pytest.raises(ConfigError, match="searched with a population of 2, compared every"):
            project.populate(members, None, *sets, *([more] if more else []))
    with pytest.raises(ConfigError, match="was searched with a population"):
        project.tune(2, None, *sets)


@pytest.mark.long
def test_weights_that_are_gone_are_not_taken_over(
    project: TrainProject, expected: TuneReport
) -> None:
    assert expected.trials[1].phases[0].run == "toy/tune/2"
    project.populate(4, None, *SEARCH, "train.steps=2")
    moved = [project.folder / path for (path,) in project.query("SELECT path FROM checkpoints")]
    for saved in moved:
        saved.rename(saved.with_name("away"))
    with pytest.raises(ConfigError, match="weights of toy/tune/2 after step 1, which another"):
        project.populate(4, None, *SEARCH)
    for saved in moved:
        saved.with_name("away").rename(saved)
    assert project.populate(4, None, *SEARCH).document() == expected.document()


def test_a_search_is_not_restarted(project: TrainProject) -> None:
    with pytest.raises(ConfigError, match="a search, which resumes by itself"):
        project.populate(2, None, *SEARCH, restart_step=0)
