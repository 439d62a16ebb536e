"""Row by row: what a resume refuses, with a diff, and what does not matter to it."""

from pathlib import Path

import pytest

from grpo_practice.errors import FingerprintError
from grpo_practice.store import Store, datasets
from grpo_practice.types import Sample
from tests.app.project import Project

ONE_STEP = ("practice.epochs=1", "practice.batch_size=12", "practice.grpo_n=2")


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    """A finished run, whose verify function is in a file."""
    project = Project(tmp_path)
    (tmp_path / "v.py").write_text("def check(sample, **kw):\n    return {'reward': 0.5}\n")
    await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    return project


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("evaluation.agent.model.model_provider.model=other", "model_provider.model"),
        ("evaluation.agent.model.model_settings.max_tokens=9", "model_settings.max_tokens"),
        ("practice.grpo_n=3", "practice.grpo_n"),
        *(
            pytest.param(change, key, marks=pytest.mark.long)
            for change, key in (
                ("practice.seed=5", "practice.seed"),
                ("practice.batch_size=6", "practice.batch_size"),
                ("practice.rollout_temperature=0.1", "practice.rollout_temperature"),
                ("evaluation.agent.agent.instructions=Guess.", "instructions"),
            )
        ),
        ("evaluation.verify=exact", "verify"),
    ],
)
async def test_1_64_a_changed_setting_is_refused_with_a_diff(
    project: Project, change: str, key: str
) -> None:
    somewhere = "evaluation.agent.model.model_provider.base_url=http://127.0.0.1:9/v1"
    with pytest.raises(FingerprintError) as e:
        await project.practise(*ONE_STEP, "evaluation.verify=v.py:check", somewhere, change)
    assert key in " ".join(c.key for c in e.value.diff)
    assert all(c.was != c.now for c in e.value.diff)
    assert e.value.exit_code == 2


async def test_1_64_a_changed_verify_file_is_refused_with_a_diff(project: Project) -> None:
    file = project.folder / "v.py"
    file.write_text(file.read_text().replace("0.5", "0.25"))
    with pytest.raises(FingerprintError) as e:
        await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    assert "verify" in " ".join(c.key for c in e.value.diff)


def grown(project: Project, less: int, more: int) -> None:
    """The dataset without so many of its rows, and with so many others, in another order."""
    with Store(project.db) as store:
        rows = store.read(datasets.samples, store.read(datasets.get, "train").id)[less:]
        others = [Sample(f"{n} + 0?", str(n)) for n in range(more)]
        store.add_dataset("train", [*others, *reversed(rows)], origin="x", replace=True)


async def test_1_64_a_missing_row_of_the_dataset_is_refused(project: Project) -> None:
    grown(project, 1, 0)
    with pytest.raises(FingerprintError) as e:
        await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    assert e.value.diff


async def test_1_64_added_and_reordered_rows_do_not_matter(project: Project) -> None:
    grown(project, 0, 3)
    report = await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    assert report.requests.new == 0
