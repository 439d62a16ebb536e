"""One table has all stages: whoever knows stages derives from it, or says what a new one lacks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import cast, get_args

import pytest
from bench.draws import Draws, Latency
from bench.endpoint import Speaker

from grpo_practice.core.prompts.files import FOLDER, OPTIONAL, load_prompt
from grpo_practice.core.stages import STAGES, Stage, StageSpec, distillation
from grpo_practice.practice import METHOD
from grpo_practice.sim import VOICES
from tests.run.forecast.test_estimate import ahead, calls
from tests.run.project import Project

TAUGHT: list[Stage] = [stage for stage, spec in STAGES.items() if spec.role == "teacher"]


def test_the_table_has_every_stage() -> None:
    assert set(STAGES) == set(get_args(Stage)), "give each `Stage` its row in stages.STAGES"


@pytest.mark.parametrize("stage", TAUGHT)
def test_a_stage_of_distillation_has_a_prompt_that_shows_its_heading(stage: Stage) -> None:
    path, spec = FOLDER / f"{stage}.md", STAGES[stage]
    assert spec.slots, f"name the values of {path.name} in the row {stage!r} of stages.STAGES"
    assert path.exists(), f"write the prompt {path.relative_to(FOLDER.parent)}"
    load_prompt(path, spec.slots)
    assert spec.heading, f"name a heading of {path.name} in the row {stage!r} of stages.STAGES"
    assert spec.heading in path.read_text("utf-8")
    assert spec.slots > {"agent_objective", "learning_objective"} - OPTIONAL


@pytest.mark.parametrize("stage", TAUGHT)
def test_a_stage_has_assumed_tokens_before_its_first_call(stage: Stage) -> None:
    spec = STAGES[stage]
    assert 0 < spec.tokens_in[0] < spec.tokens_in[1], f"tokens_in of {stage!r} in stages.STAGES"
    assert 0 < spec.tokens_out[0] < spec.tokens_out[1], f"tokens_out of {stage!r}"


def test_no_two_stages_have_a_sign_in_common() -> None:
    for sign in ("heading", "fence"):
        signs = [x for x in (getattr(spec, sign) for spec in STAGES.values()) if x]
        assert len(set(signs)) == len(signs)
    headings = [spec.heading for spec in STAGES.values() if spec.heading]
    for one in headings:
        inside = [other for other in headings if other != one and one in other]
        assert not inside, f"{one!r} is a part of {inside}: the simulator takes one for the other"


def test_another_stage_is_another_method() -> None:
    """A run that was begun without a stage has not its prompt, and must not go on with it."""
    said = "raise practice.METHOD and say in store/identity.py what it does; then correct this"
    assert (METHOD, distillation()) == (2, ["summarise", "compare", "propose", "merge"]), said


@pytest.mark.parametrize("stage", STAGES)
def test_the_simulated_endpoint_speaks_at_every_stage(stage: Stage) -> None:
    assert stage in VOICES, f"give the stage {stage!r} a function in sim.VOICES"


@pytest.mark.parametrize("stage", TAUGHT)
def test_the_benchmarks_endpoint_speaks_at_every_stage(stage: Stage) -> None:
    speaker = Speaker(Draws(0, Latency.read("0"), 1.0), 0)
    body = json.dumps({"messages": [{"role": "user", "content": f"{STAGES[stage].heading}\n"}]})
    speaker.reply(body.encode())
    assert speaker.counts == {stage: 1}


NEW_STAGE = """
import json, sys
from pathlib import Path
from grpo_practice.core import stages

slots = frozenset({"agent_objective", "learning_objective", "lessons"})
stages.STAGES["reflect"] = stages.StageSpec(
    "teacher", "group", tokens_in=(10, 20), tokens_out=(1, 2), slots=slots,
    heading="## The reflections", fence="reflection",
)
from grpo_practice import sim
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.run.forecast.estimate import StageCalls, forecast_line
from grpo_practice.run.forecast.range import Range
from grpo_practice.llm.prices import Prices
from grpo_practice.core.prompts.files import SLOTS, load_prompts
from grpo_practice.store import Store
from bench.draws import Draws, Latency
from bench.endpoint import Speaker

said = {"slots": sorted(SLOTS["reflect"])}
body = {"messages": [{"role": "user", "content": "## The reflections\\n"}]}
said["sim"] = sim.stage_of(body)
for name, ask in {
    "prompts": load_prompts,
    "voice": lambda: sim.answer(body),
    "bench": lambda: Speaker(Draws(0, Latency.read("0"), 1.0), 0).reply(json.dumps(body).encode()),
}.items():
    try:
        ask()
    except (ConfigError, NotImplementedError) as e:
        said[name] = str(e)
model = ModelConfig.model_validate({"model_provider": {"model": "sim"}})
with Store(Path(sys.argv[1])) as store:
    left = StageCalls("practice", "reflect", model, Range(3, 3), 1)
    line = forecast_line(store, Prices({}), "r", left)
said["forecast"] = [line.stage, list(line.tokens_in), list(line.tokens_out)]
print(json.dumps(said))
"""


@pytest.mark.long
def test_every_reader_takes_in_a_new_stage_or_complains(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NEW_STAGE, str(tmp_path / "s.db")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["slots"] == ["agent_objective", "learning_objective", "lessons"]
    assert said["sim"] == "reflect"
    assert "reflect.md" in said["prompts"]
    assert said["voice"] == "the simulated endpoint has no voice for 'reflect': sim.VOICES"
    assert said["bench"] == "bench.endpoint does not speak at 'reflect'"
    assert said["forecast"] == ["reflect", [30, 60], [3, 6]]


async def test_a_dry_run_and_a_resumed_run_know_a_new_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    assert "practice reflect" not in calls(ahead(project))
    new = StageSpec("teacher", "group", tokens_in=(10, 20), tokens_out=(1, 2))
    monkeypatch.setitem(cast(dict[str, StageSpec], STAGES), "reflect", new)
    forecast = calls(ahead(project))
    assert forecast["practice reflect"] == forecast["practice compare"]
