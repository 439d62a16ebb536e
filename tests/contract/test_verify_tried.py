"""A verify function of the user's is tried on its own golds before anything is paid."""

from pathlib import Path

import pytest

from tests.contract.project import Project, served

MISSPELT = "def f(sample):\n    return sample.responze == sample.correct_answer\n"
OWN = "verify=mine.py:f"


def told(project: Project) -> list[str]:
    return [text for text in project.notices if "as right" in text]


@pytest.mark.long
async def test_a_function_that_raises_for_every_gold_is_refused_before_a_request(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    file = tmp_path / "mine.py"
    async with served() as endpoint:
        url = endpoint.override()
        for play, override, at in (
            (project.practise, f"evaluation.{OWN}", url),
            (project.evaluate, OWN, url.removeprefix("evaluation.")),
        ):
            runs, asked = project.query("SELECT * FROM runs"), len(endpoint.bodies)
            file.write_text(MISSPELT)
            with pytest.raises(Exception, match="did you mean response") as caught:
                await play(override, at)
            assert "fix it" in str(getattr(caught.value, "hint", ""))
            assert len(endpoint.bodies) == asked
            assert project.query("SELECT * FROM runs") == runs
            # The same command goes on once the function is mended: no run is bound to the old one.
            file.write_text(MISSPELT.replace("responze", "response"))
            await play(override, at)
            assert len(endpoint.bodies) > asked


async def test_a_function_that_takes_no_gold_for_right_is_one_notice(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "mine.py").write_text("def f(sample):\n    return 0.0\n")
    await project.practise(f"evaluation.{OWN}", "practice.do_eval=true", "practice.epochs=1")
    (text,) = told(project)
    assert text.startswith(
        "verify mine.py:f scores none of 5 gold answers of train as right, for instance '"
    )
    assert "grpo-practice verify tries other forms" in text
    await project.evaluate(OWN, "exp_id=other")
    await project.evaluate(OWN, "exp_id=other")
    assert len(told(project)) == 2


async def test_one_gold_that_counts_is_enough_and_no_other_is_tried(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import pathlib\n"
        "def f(sample):\n"
        f"    with pathlib.Path({str(tmp_path / 'tried')!r}).open('a') as out:\n"
        "        out.write('x')\n"
        "    return sample.response == sample.correct_answer\n"
    )
    report = await project.evaluate(OWN, limit=3)
    assert not told(project)
    assert (tmp_path / "tried").read_text() == "x" * (1 + report.score.scored)
