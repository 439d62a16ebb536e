"""The result of a comparison in words, at the limits of what it says."""

from dataclasses import replace

from grpo_practice import Workspace
from grpo_practice.core.stats.paired import Moved
from tests.cli.conftest import Gp
from tests.contract.project import DB
from tests.contract.test_compare_arms import PAIR


def test_a_p_is_told_on_its_side_of_the_limit(demo: Gp) -> None:
    report = Workspace(DB).compare(*PAIR)
    for p, told in {
        0.0001: "< .001",
        0.0072: ".007",
        0.04996: ".04996",
        0.9: ".900",
        0.9996: "> .999",
    }.items():
        found = report.conclusion(replace(report.contrasts[0], p_adjusted=p))
        assert found.lines["adjusted p"] == told


def test_few_questions_with_a_mean_near_its_end_are_told(demo: Gp) -> None:
    report = Workspace(DB).compare("demo/eval", "demo")
    (contrast,) = report.contrasts
    for right, questions, said in ((0.93, 99, True), (0.93, 100, False), (0.89, 99, False)):
        for baseline, arm in ((right, 0.5), (0.5, right), (1 - right, 0.5)):
            rows = [Moved(str(n), baseline, arm) for n in range(questions)]
            found = replace(
                contrast.difference, questions=rows, effective_clusters=float(questions)
            )
            lines = report.conclusion(replace(contrast, difference=found, new=None)).lines
            assert ("caution" in lines) == said, lines


def test_what_more_questions_would_find_is_told_only_if_no_difference_was_found(demo: Gp) -> None:
    report = Workspace(DB).compare("demo/eval", "demo")
    (contrast,) = report.contrasts
    find = ["these questions find", "to find 5 points"]
    assert not {*find} & report.conclusion(contrast).lines.keys()
    none = report.conclusion(replace(contrast, verdict="none found")).lines
    assert none[find[0]].endswith(" points, 4 times in 5")
    assert none[find[1]].endswith(" questions in all")
    few = report.conclusion(replace(contrast, verdict="too few")).lines
    assert few[find[0]] == "nothing: a verdict needs at least 10 questions"
    assert find[1] not in few


def test_answers_that_are_all_wrong_or_all_right_are_told(demo: Gp) -> None:
    report = Workspace(DB).compare("demo/eval", "demo")
    (contrast,) = report.contrasts
    for reward, said in ((0.0, "check the verify function"), (1.0, "too easy to show a gain")):
        rows = [Moved(str(n), reward, reward) for n in range(30)]
        found = replace(contrast, difference=replace(contrast.difference, questions=rows), new=None)
        assert said in report.conclusion(replace(found, verdict="none found")).lines["caution"]
