"""Settings become TRL's; batches divide, or the message has numbers that do."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_practice.config.schema.base import Model
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.train import LoraSettings, TrainSettings
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.stats import advantages
from grpo_practice.train import checks
from grpo_practice.train.checks import (
    check_disk,
    checkpoint_bytes,
    lora_arguments,
    prompts_of,
    steps_planned,
)
from grpo_practice.train.gather import Ranks
from grpo_practice.train.generate import as_answer
from grpo_practice.train.recipe import BatchShape, batch_shape, grpo_arguments, settings_of
from grpo_practice.train.rewards import given_rewards, is_uniform, skips_uniform
from grpo_practice.train.work import Answer


def config(**train: Any) -> PracticeConfig:
    return PracticeConfig.model_validate(
        {
            "exp_id": "x",
            "data": {"practice_dataset_name": "d"},
            "evaluation": {
                "exp_id": "x",
                "verify": "math",
                "agent": {"agent": {"instructions": "Be {brief}."}},
            },
            "train": {"model": "m", **train},
        }
    )


@pytest.mark.parametrize(
    ("prompts", "group", "ranks", "memory", "shape"),
    [
        (8, 8, 1, "normal", (8, 8)),
        (8, 8, 2, "normal", (8, 4)),
        (3, 5, 1, "normal", (5, 3)),
        (1, 7, 1, "normal", (7, 1)),
        (4, 4, 4, "low", (1, 4)),
        (2, 11, 1, "normal", (2, 11)),
    ],
)
def test_a_step_is_divided_into_whole_batches(
    prompts: int, group: int, ranks: int, memory: str, shape: tuple[int, int]
) -> None:
    found = batch_shape(
        TrainSettings.model_validate(
            {"model": "m", "prompts_per_step": prompts, "group_size": group, "memory": memory}
        ),
        ranks,
    )
    assert found == BatchShape(*shape)
    assert found.per_device * found.accumulation * ranks == prompts * group


def test_groups_are_not_split_over_ranks() -> None:
    settings = TrainSettings(model="m", prompts_per_step=8)
    with pytest.raises(ConfigError, match="8 cannot be divided among 3 ranks") as caught:
        batch_shape(settings, 3)
    assert caught.value.hint == "--set train.prompts_per_step=9, or start 2 or 1 ranks"


READ_ELSEWHERE = {
    "model", "revision", "prompts_per_step", "lora", "steps", "epochs", "save_every", "eval_every",
    "device", "tune", "skip_uniform", "temperature", "learning_rate",
}  # fmt: skip
"""Keys that become no argument of TRL by their name alone; the tests below and beside see them."""


def test_each_setting_reaches_trl() -> None:
    shape = BatchShape(4, 2)
    usual = grpo_arguments(config(), shape, steps=3, folder="f")
    others: dict[str, tuple[Any, dict[str, Any]]] = {
        "group_size": (3, {"num_generations": 3}),
        "update_epochs": (4, {"num_iterations": 4, "max_steps": 12}),
        "learning_rate": (1e-4, {"learning_rate": 1e-4}),
        "scheduler": ("cosine", {"lr_scheduler_type": "cosine"}),
        "clip": ([0.1, 0.3], {"epsilon": 0.1, "epsilon_high": 0.3}),
        "beta": (0.04, {"beta": 0.04}),
        "loss": ("grpo", {"loss_type": "grpo"}),
        "importance": ("sequence", {"importance_sampling_level": "sequence"}),
        "scale_rewards": ("none", {"scale_rewards": "none"}),
        "temperature": (1.5, {"temperature": 1.5}),
        "min_output_tokens": (5, {"generation_kwargs": {"min_new_tokens": 5}}),
        "max_output_tokens": (99, {"max_completion_length": 99}),
        "mask_truncated": (True, {"mask_truncated_completions": True}),
        "max_grad_norm": (0.5, {"max_grad_norm": 0.5}),
        "seed": (7, {"seed": 7}),
        "memory": ("low", {"gradient_checkpointing": True}),
        "compile": (True, {"torch_compile": True}),
        "generate": ("vllm", {"use_vllm": True, "generation_kwargs": {"min_tokens": 0}}),
        "lora": (None, {"learning_rate": 1e-6}),
    }
    for key, (value, changed) in others.items():
        made = grpo_arguments(config(**{key: value}), shape, steps=3, folder="f")
        assert {k: v for k, v in made.items() if usual[k] != v} == changed, key
    assert TrainSettings.model_fields.keys() - others.keys() <= READ_ELSEWHERE
    assert usual["trust_remote_code"] is False
    assert usual["use_bias_correction_kl"] is False
    assert usual["router_aux_loss_coef"] == 0.0
    assert usual["temperature"] == config().practice.rollout_temperature


def test_answers_at_once_change_no_loss() -> None:
    low = {"memory": "low", "prompts_per_step": 4, "group_size": 4}
    assert batch_shape(settings_of(config(**low)), 1) == BatchShape(1, 16)
    bnpo = settings_of(config(**low, loss="bnpo"))
    assert batch_shape(bnpo, 1) == BatchShape(8, 2)
    assert not skips_uniform(bnpo)
    assert skips_uniform(settings_of(config(loss="dapo")))


def test_a_largest_ratio_below_1_would_cut_every_update() -> None:
    with pytest.raises(ValidationError, match=r"write clip: \[0\.2, 5\.0\]"):
        config(loss="cispo")
    assert settings_of(config(loss="cispo", clip=[0.2, 5.0])).clip == (0.2, 5.0)


class _Letters:
    """A tokenizer whose tokens are letters; 0 is an end, and says nothing."""

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return "".join(chr(token) for token in ids if token)


@pytest.mark.parametrize(
    ("text", "ends", "used", "cut"),
    [("ab", 2, 3, False), ("abc", 1, 4, False), ("abcd", 0, 4, True)],
)
def test_an_answer_is_all_of_its_text_up_to_its_end(
    text: str, ends: int, used: int, *, cut: bool
) -> None:
    ids = [*map(ord, text), *[0] * ends]
    found = as_answer((3, 1), ids, 7, tokenizer=_Letters(), eos={0}, most=4)
    assert found == Answer(3, 1, text, 7, used, truncated=cut)


@pytest.mark.parametrize(
    ("left", "every", "saves"),
    [(range(10), 0, 2), (range(9, 10), 0, 1), (range(10), 1, 10), (range(10, 10), 1, 0)],
)
def test_the_disk_is_looked_at_for_what_is_left_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: range, every: int, saves: int
) -> None:
    made = config(save_every=7)
    monkeypatch.setattr(checks, "trained_parameters", lambda *_: 10**6)
    free = saves * checkpoint_bytes(10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    check_disk(made, tmp_path, left, tmp_path, every=every)
    if saves:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free - 1))
        with pytest.raises(ConfigError, match=r"of 12\.0 MB do not fit on the disk"):
            check_disk(made, tmp_path, left, tmp_path, every=every)


def test_an_adapter_is_what_its_section_says() -> None:
    assert lora_arguments(LoraSettings(r=4, alpha=9)) == {
        "r": 4,
        "lora_alpha": 9,
        "target_modules": "all-linear",
        "task_type": "CAUSAL_LM",
    }
    assert lora_arguments(LoraSettings(targets=("q_proj",)))["target_modules"] == ["q_proj"]


def test_every_field_of_the_section_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the keys that the functions here read; the rest is read in run/, where runs are tested."""
    seen = set[str]()

    def noted(self: Model, name: str) -> Any:
        if type(self) in (TrainSettings, LoraSettings):
            seen.add(name)
        return object.__getattribute__(self, name)

    made = config(steps=2)
    monkeypatch.setattr(Model, "__getattribute__", noted)
    settings = settings_of(made)
    batch_shape(settings, 1)
    grpo_arguments(made, BatchShape(4, 2), steps=3, folder="f")
    steps_planned(made, range(100))
    lora_arguments(settings.lora or LoraSettings())
    skips_uniform(settings)
    in_app = {"model", "revision", "save_every", "eval_every", "device", "tune", "epochs"}
    fields = {*TrainSettings.model_fields, *LoraSettings.model_fields}
    assert fields - seen <= in_app


def test_steps_say_how_long_or_epochs_do() -> None:
    plan = steps_planned(config(prompts_per_step=4, group_size=3, epochs=2), range(10, 20))
    assert [(p.step, p.epoch, len(p.slots)) for p in plan] == [
        (0, 0, 4), (1, 0, 4), (2, 1, 4), (3, 1, 4),
    ]  # fmt: skip
    assert {attempts for p in plan for _, attempts in p.slots} == {3}
    longer = steps_planned(config(prompts_per_step=4, group_size=3, steps=7), range(10, 20))
    assert len(longer) == 7
    assert longer[:4] == plan  # a run that is made longer keeps what it has played
    with pytest.raises(DataError, match="3 questions do not fill a step of 4"):
        steps_planned(config(prompts_per_step=4), range(3))


def test_the_prompt_is_that_of_practice() -> None:
    assert prompts_of(config(), ["2 + 2?"]) == [
        [{"role": "system", "content": "Be {brief}."}, {"role": "user", "content": "2 + 2?"}]
    ]
    plain = config().model_copy(deep=True)
    agent = plain.evaluation.agent.agent.model_copy(update={"instructions": ""})
    evaluation = plain.evaluation.model_copy(
        update={"agent": plain.evaluation.agent.model_copy(update={"agent": agent})}
    )
    alone = prompts_of(plain.model_copy(update={"evaluation": evaluation}), ["2 + 2?"])
    assert alone == [[{"role": "user", "content": "2 + 2?"}]]


def test_equal_rewards_are_exactly_zero_and_others_keep_their_advantages() -> None:
    assert given_rewards([0.1, 0.1, 0.1], "group") == [0.0, 0.0, 0.0]
    assert given_rewards([0.1, None, 0.1], "none") == [0.0, None, 0.0]
    given = given_rewards([1.0, 0.0, None, 0.25], "group")
    assert given[2] is None
    left = [r for r in given if r is not None]
    assert sum(left) == pytest.approx(0, abs=1e-15)
    assert advantages(left) == pytest.approx(advantages([1.0, 0.0, 0.25]), abs=1e-12)


def test_over_a_batch_rewards_are_given_as_they_are() -> None:
    assert given_rewards([0.1, None, 0.4], "batch") == [0.1, None, 0.4]
    assert given_rewards([None, None], "group") == [None, None]


def test_what_teaches_nothing_is_left_out_only_without_a_kl_term() -> None:
    assert is_uniform([None, None])
    assert is_uniform([0.3, None, 0.3])
    assert not is_uniform([0.3, 0.4])
    assert skips_uniform(settings_of(config()))
    assert not skips_uniform(settings_of(config(beta=0.1)))
    assert not skips_uniform(settings_of(config(skip_uniform=False)))


def test_the_place_among_processes_is_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Ranks.of_environment() == Ranks(1, 2)
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(ConfigError, match="RANK '2' is not valid for WORLD_SIZE '2'"):
        Ranks.of_environment()
    alone = Ranks()
    assert (alone.gather(3), alone.broadcast("x"), alone.first) == ([3], "x", True)
