"""Every key of the config does something: a run reads it, or an endpoint receives it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel

from grpo_practice.config.reading.problems import model_in
from grpo_practice.config.schema.agent import RayConfig
from grpo_practice.config.schema.base import Model
from grpo_practice.config.schema.provider import WORKED_OUT, ModelParams, ModelSettings, Reasoning
from grpo_practice.config.schema.runs import PracticeConfig, VerifySpec
from grpo_practice.config.schema.train import TrainSettings
from grpo_practice.main import run
from grpo_practice.run.specs import DEFAULT_LIMITS
from grpo_practice.sim import stage_of
from tests.contract.project import served
from tests.run.project import Project

SOURCES = str(Path(__file__).parents[1] / "src/grpo_practice")
UNREAD = {
    **{
        f"AgentConfig.{name}": "read where there are tools or an agent of one's own; tested there"
        for name in ("max_turns", "stop_at_tool_names")
    },
    "ProxyConfig.insecure": "is a word for the check of the others",
    "ProxyConfig.tls_key": "read where there is a certificate; tested there",
}
"""Fields that no run reads, and why."""


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        inner = model_in(field.annotation)
        if inner is not None:
            yield from models(inner)


TRAINED = set(models(TrainSettings))
"""Sections that training alone reads; tests/train/ has the like of this test."""
MODELS: set[type[BaseModel]] = {*models(PracticeConfig), VerifySpec}
MODELS -= {*TRAINED, RayConfig}  # tests/ray/ reads the latter
FIELDS = {
    f"{m.__name__}.{f}"
    for m in MODELS
    if m not in (ModelSettings, Reasoning, ModelParams)  # handed on as a whole; see the end
    for f in m.model_fields
    if f not in WORKED_OUT and f"{m.__name__}.{f}" != "PracticeConfig.train"
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """`Class.field` of every config field that the program has read, checks of it left out.

    The settings that evaluations have as constants are no config either.
    """
    seen = set[str]()

    def noted(self: Model, name: str) -> Any:
        fields = type.__getattribute__(type(self), "__pydantic_fields__")
        if name in fields and self is not DEFAULT_LIMITS and _uses(sys._getframe(1)):
            seen.add(f"{type(self).__name__}.{name}")
        return object.__getattribute__(self, name)

    monkeypatch.setattr(Model, "__getattribute__", noted)
    return seen


def _uses(frame: FrameType) -> bool:
    """True for code of the program that is no validator: those are private, beside the fields."""
    code = frame.f_code
    path = code.co_filename.removeprefix(SOURCES)
    beside = path.startswith("/config/schema/")
    return path != code.co_filename and not (beside and code.co_name.startswith("_"))


def test_the_commands_read_every_field(
    tmp_path: Path, read: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    monkeypatch.chdir(tmp_path)
    common = ("--config", str(project.config), "--db", str(project.db))
    often = ("--set", "practice.do_eval=true", "--set", "practice.eval_strategy=steps")
    judged = ("--set", "evaluation.verify=judge", "--epochs", "1")
    assert run(["practice", *common, *often, *judged]) == 0
    assert run(["eval", *common, "--exp-id", "other", "--verify", "judge"]) == 0
    (tmp_path / "mine.py").write_text("def solve(*_): return '0'\n", "utf-8")
    own = ("type=python", "function=mine.py:solve", "proxy.insecure=true")
    words = [word for key in own for word in ("--set", f"agent.{key}")]
    assert run(["eval", *common, "--exp-id", "own", "--verify", "exact", *words]) == 0
    assert FIELDS - read == UNREAD.keys(), "nothing reads the extra fields on the left"


def test_a_field_that_is_only_checked_or_dumped_is_not_read(read: set[str]) -> None:
    config = PracticeConfig.model_validate(
        {
            "exp_id": "x",
            "data": {"practice_dataset_name": "d"},
            "evaluation": {"exp_id": "x", "verify": "math", "data": {"dataset": "e"}},
        }
    )
    config.model_dump_json()
    assert config.exp_id == "x"  # this file is no part of the program
    assert read == set()


SENT: dict[str, tuple[object, dict[str, object]]] = {
    "temperature": (0.25, {"temperature": 0.25}),
    "top_p": (0.5, {"top_p": 0.5}),
    "frequency_penalty": (0.75, {"frequency_penalty": 0.75}),
    "presence_penalty": (-0.5, {"presence_penalty": -0.5}),
    "max_tokens": (3000, {"max_tokens": 3000}),
    "reasoning": ("{effort: low}", {"reasoning_effort": "low"}),
    "verbosity": ("high", {"verbosity": "high"}),
    "top_logprobs": (2, {"logprobs": True, "top_logprobs": 2}),
    "metadata": ("{team: a}", {"metadata": {"team": "a"}}),
    "store": ("false", {"store": False}),
    "prompt_cache_retention": ("24h", {"prompt_cache_retention": "24h"}),
    "extra_body": ("{top_k: 40}", {"top_k": 40}),
    "extra_args": ("{min_p: 0.1, timeout: 30}", {"min_p": 0.1}),
    "tool_choice": ("auto", {}),
    "parallel_tool_calls": ("true", {}),
    "include_usage": ("true", {}),
    "extra_query": ("{api-version: v7}", {}),
    "extra_headers": ("{X-Team: red}", {}),
}
"""Setting → (value, what the body then has). What is about tools goes with tools alone."""


async def test_every_setting_reaches_the_endpoint_as_promised(tmp_path: Path) -> None:
    assert SENT.keys() == ModelSettings.model_fields.keys()
    settings = [
        f"evaluation.agent.model.model_settings.{k}={value}" for k, (value, _) in SENT.items()
    ]
    async with served() as endpoint:
        await Project(tmp_path).evaluate(endpoint.override(), *settings)
    expected = {key: value for _, body in SENT.values() for key, value in body.items()}
    assert endpoint.bodies
    for body, headers, query in zip(
        endpoint.bodies, endpoint.headers, endpoint.queries, strict=True
    ):
        assert {k: v for k, v in body.items() if k in expected} == expected
        assert body.keys() - expected.keys() == {"model", "messages", "seed"}
        assert headers["x-team"] == "red"
        assert query == {"api-version": "v7"}


async def test_the_teachers_settings_reach_the_endpoint_and_not_the_student(tmp_path: Path) -> None:
    values = {"temperature": 0.125, "top_p": 0.625}
    assert values.keys() | {"parallel_tool_calls"} == ModelParams.model_fields.keys()
    async with served() as endpoint:
        await Project(tmp_path).practise(
            endpoint.override(),
            "practice.epochs=1",
            *(f"evaluation.agent.model.model_params.{k}={v}" for k, v in values.items()),
        )
    for body in endpoint.bodies:
        taught = stage_of(body) != "play"
        assert ({k: body.get(k) for k in values} == values) is taught
    assert {stage_of(body) for body in endpoint.bodies} > {"play"}
