"""A question that cannot be scored is named and left out: neither right nor wrong, nor asked."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import DataError
from grpo_practice.core.events import Notice
from grpo_practice.core.types import Sample
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from tests.contract.project import served
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project of the tests, with a row among twelve whose answer is missing."""
    project = Project(tmp_path)
    known = questions(24, 0)
    with Store(project.db) as store:
        for name, samples in (("train", known[:12]), ("test", known[12:])):
            rows = [*samples[:4], Sample("Which one?"), *samples[4:]]
            store.add_dataset(f"{name}-1", rows, origin="x", replace=False)
    return project


def notices(project: Project) -> list[str]:
    return [e.text for e in project.events if isinstance(e, Notice) and "cannot be" in e.text]


async def test_a_question_that_cannot_be_scored_is_in_no_number_of_the_score(
    project: Project,
) -> None:
    whole = await project.evaluate("exp_id=whole", limit=12)
    async with served() as endpoint:
        url = endpoint.override().removeprefix("evaluation.")
        report = await project.evaluate("data.dataset=test-1", "exp_id=eval", url)
        asked = len(endpoint.bodies)
    assert asked == 12
    score = report.score
    assert (score.questions_unscorable, score.questions, score.planned, score.scored) == (
        1,
        12,
        12,
        12,
    )
    assert (score.mean, score.ci95) == (whole.score.mean, whole.score.ci95)
    assert ("left out", "1 of 13 questions cannot be scored") in report.summary()
    assert report.document()["score"]["questions_unscorable"] == 1
    (notice,) = notices(project)
    assert notice.startswith("1 of 13 questions cannot be scored and are left out: row 5: ")


async def test_it_stays_left_out_when_the_evaluation_goes_on_or_grows(project: Project) -> None:
    report = await project.evaluate("data.dataset=test-1", limit=6)
    assert (report.score.questions_unscorable, report.score.planned) == (1, 5)
    report = await project.evaluate("data.dataset=test-1")
    assert (report.score.questions_unscorable, report.score.planned) == (1, 12)
    report = await project.evaluate("data.dataset=test-1", "pass_k=2")
    assert (report.score.questions_unscorable, report.score.planned) == (1, 24)
    again = await project.evaluate("data.dataset=test-1", "pass_k=2")
    assert again.requests.new == 0
    assert again.score == report.score
    assert len(notices(project)) == 1


async def test_an_evaluation_scored_again_leaves_out_what_the_new_function_cannot_use(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    options = {"options": {"A": "1", "B": "2"}}
    rows = [Sample(f"{n}?", "B", meta=options) for n in range(9)] + [Sample("last?", "7 apples")]
    with Store(project.db) as store:
        store.add_dataset("letters", rows, origin="x", replace=False)
    report = await project.evaluate("data.dataset=letters", "verify=exact")
    assert (report.score.questions_unscorable, report.score.scored) == (0, 10)
    for _ in range(2):
        judged = await project.evaluate(config=None, rejudge=True, verify="choice")
        assert (judged.score.questions_unscorable, judged.score.scored, judged.requests.new) == (
            1,
            9,
            0,
        )
    assert not any("has changed since" in e.text for e in project.events if isinstance(e, Notice))


async def test_practice_plays_the_others(project: Project) -> None:
    await project.practise("data.practice_dataset_name=train-1", "practice.epochs=1")
    assert project.query("SELECT count(*), sum(planned) FROM groups") == [(12, 36)]
    assert "1 of 13 questions cannot be scored" in notices(project)[0]
    plain = Project(project.folder / "plain")
    await plain.practise("practice.epochs=1")
    assert project.results() == plain.results()


async def test_more_of_them_than_max_failed_share_stop_the_run(project: Project) -> None:
    with pytest.raises(DataError, match=r"1 answer of dataset 'train-1' cannot .* row 5: ") as e:
        await project.practise("data.practice_dataset_name=train-1", "practice.max_failed_share=0")
    assert "more than max_failed_share (0) of 13" in (e.value.hint or "")
