"""What practice does and what training does, in one table, asked at one endpoint."""

import asyncio
import json
from pathlib import Path

import pytest

from grpo_practice.cli.terminal.comparison_view import show_comparison
from grpo_practice.core.errors import ConfigError, FingerprintError
from grpo_practice.reports.comparison import ComparisonReport
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from tests.contract.project import Served, served
from tests.train.fake_trainer import TrainProject

ARMS = ("base", "practised", "trained", "trained+practised")
CONFIG = """
exp_id: toy
practice: {{epochs: 1, batch_size: 6, grpo_n: 3}}
data: {{practice_dataset_name: train}}
evaluation:
  verify: math
  data: {{dataset: test}}
  agent:
    model: {{model_provider: {{model: base, base_url: "{url}", api_key: k}}}}
    agent: {{name: solver, instructions: "Solve it. Put the answer in \\\\boxed{{}}."}}
train: {{model: base, prompts_per_step: 4, group_size: 4, steps: 2, save_every: 2}}
"""


async def learnt(folder: Path, monkeypatch: pytest.MonkeyPatch, endpoint: Served) -> TrainProject:
    """A project that has trained, practised and exported, all of it beside its config."""
    project = TrainProject(folder, monkeypatch)
    monkeypatch.chdir(folder)
    project.config.write_text(CONFIG.format(url=endpoint.url))
    samples = questions(24, 0)
    with Store(project.db) as store:
        store.add_dataset("train", samples[:12], origin="sim", replace=False)
        store.add_dataset("test", samples[12:], origin="sim", replace=False)
    project.train()
    await asyncio.to_thread(project.workspace.practise, project.config, env={})
    project.workspace.export_trained("toy/train")
    return project


async def play(project: TrainProject, *arms: str) -> ComparisonReport:
    ask = project.workspace.evaluate_arms
    return await asyncio.to_thread(ask, arms or ARMS, project.config, env={})


@pytest.mark.long
async def test_all_four_are_asked_together_and_their_costs_stand_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as endpoint:
        project = await learnt(tmp_path / "p", monkeypatch, endpoint)
        before = len(endpoint.bodies)
        report = await play(project)
        models = [body["model"] for body in endpoint.bodies[before:]]
        trained = str(project.folder / "toy-trained/model")
        # Without a GPU server the adapter goes by its own name.
        assert set(models) == {"base", "toy-trained"} or set(models) == {"base", trained}
        assert len(models) == 4 * 12
        first = models[:24]
        assert 6 <= first.count("base") <= 18, "question by question, not arm by arm"
        assert (await play(project)).arms == report.arms
        assert len(endpoint.bodies) == before + 4 * 12
    assert [arm.named for arm in report.arms] == list(ARMS)
    assert [(c.baseline, c.arm) for c in report.contrasts] == [
        ("toy/eval", run.run) for run in report.arms[1:]
    ]
    costs = report.learning
    assert costs["base"].rollouts == costs["base"].shipped_bytes == 0
    assert costs["trained"].rollouts == 2 * 16
    assert costs["trained"].tokens == 2 * 16 * 14
    assert costs["practised"].rollouts == 12 * 3
    assert costs["practised"].shipped_bytes > 0
    both = costs["trained+practised"]
    assert both.rollouts == 2 * 16 + 12 * 3
    assert both.shipped_bytes == costs["trained"].shipped_bytes + costs["practised"].shipped_bytes
    stored = project.workspace.compare_arms("toy", ARMS)
    assert stored.document()["learning"] == report.document()["learning"]
    assert stored.document()["contrasts"] == report.document()["contrasts"]


async def test_what_would_make_the_table_unfair_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as endpoint:
        project = await learnt(tmp_path / "p", monkeypatch, endpoint)
        asked = len(endpoint.bodies)
        agent = project.folder / "toy-trained/agent.yaml"
        written = agent.read_text()
        agent.write_text(written.replace("Solve it.", "Solve it well."))
        with pytest.raises(FingerprintError) as caught:
            await play(project)
        assert [change.key for change in caught.value.diff] == ["agent.agent.instructions"]
        text = written.replace("agent:\n", "max_turns: 3\nagent:\n")
        agent.write_text(text)
        with pytest.raises(FingerprintError) as caught:
            await play(project)
        assert [change.key for change in caught.value.diff] == ["agent.max_turns"]
        agent.write_text(written)
        (project.base / "model.safetensors").write_bytes(b"another base")
        with pytest.raises(ConfigError, match="the arm base uses the model base, but toy/train"):
            await play(project)
        assert len(endpoint.bodies) == asked, "refused before anything is paid"


async def test_weights_that_are_not_exported_or_of_elsewhere_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as endpoint:
        project = await learnt(tmp_path / "p", monkeypatch, endpoint)
        about = project.folder / "toy-trained/training.json"
        kept = about.read_text()
        about.write_text(json.dumps(json.loads(kept) | {"sha256": "00" * 32}))
        with pytest.raises(ConfigError, match="contains weights that toy/train did not save"):
            await play(project, "base", "trained")
        about.unlink()
        with pytest.raises(ConfigError, match="are not exported to toy-trained") as caught:
            await play(project, "base", "trained")
        assert "grpo-practice export-agent --run toy/train --merge" in (caught.value.hint or "")


@pytest.mark.long
async def test_stored_arms_that_were_not_played_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as endpoint:
        project = await learnt(tmp_path / "p", monkeypatch, endpoint)
        await play(project, "base", "trained")
    compare = project.workspace.compare_arms
    assert [arm.named for arm in compare("toy", ["base", "trained"]).arms] == ["base", "trained"]
    with pytest.raises(ConfigError, match="toy has no evaluation of practised") as caught:
        compare("toy", ["base", "practised", "trained"])
    assert "eval --arms" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match="there is no such arm"):
        compare("toy", ["base", "trainde"])
    with pytest.raises(ConfigError, match="needs two arms"):
        compare("toy", ["base"])


@pytest.mark.long
async def test_an_exported_checkpoint_as_a_file_has_its_cost_and_another_file_an_unknown_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served() as endpoint:
        project = await learnt(tmp_path / "p", monkeypatch, endpoint)
        exported = "toy-trained/agent.yaml"
        written = (project.folder / exported).read_text()
        (project.folder / "by_hand.yaml").write_text(written)
        report = await play(project, "base", "trained", exported, "by_hand.yaml")
    costs = report.learning
    assert costs[exported] == costs["trained"]
    assert (costs["trained"].rollouts, costs["trained"].shipped_bytes > 0) == (32, True)
    assert "by_hand.yaml" not in costs
    assert list(report.document()["learning"]) == ["base", "trained", exported]
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr("grpo_practice.cli.terminal.consoles.out.width", 300)
    show_comparison(report)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    rows = {words[0]: words[-7:] for words in lines[:5]}
    assert rows["arm"] == ["learning", "asked", "tokens", "cost", "device", "wall", "shipped"]
    assert rows["by_hand.yaml"] == ["unknown", "12", "unknown", "unknown", "-", "-", "-"]
    assert rows["base"] == ["0", "12", "0", "-", "-", "-", "-"]
    assert "$0.00" not in {cell for cells in rows.values() for cell in cells}
