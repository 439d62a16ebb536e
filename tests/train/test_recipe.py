"""Settings become TRL's; batches divide, or the message has numbers that do."""

from typing import Any

import pytest

from grpo_practice.config.schema.base import Model
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.config.schema.train import LoraSettings, TrainSettings
from grpo_practice.errors import ConfigError, DataError
from grpo_practice.stats import advantages
from grpo_practice.train.checks import lora_arguments, prompts_of, steps_planned
from grpo_practice.train.gather import Ranks
from grpo_practice.train.recipe import BatchShape, batch_shape, grpo_arguments, settings_of
from grpo_practice.train.rewards import given_rewards, is_uniform, skips_uniform


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
    assert found == BatchShape(ranks, *shape)
    assert found.per_rank * ranks == prompts * group


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
    shape = BatchShape(1, 4, 2)
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
        "generate": ("vllm", {"use_vllm": True}),
        "lora": (None, {"learning_rate": 1e-6}),
    }
    for key, (value, changed) in others.items():
        made = grpo_arguments(config(**{key: value}), shape, steps=3, folder="f")
        assert {k: v for k, v in made.items() if usual[k] != v} == changed, key
    assert TrainSettings.model_fields.keys() - others.keys() <= READ_ELSEWHERE
    assert usual["trust_remote_code"] is False
    assert usual["use_bias_correction_kl"] is False
    assert usual["temperature"] == config().practice.rollout_temperature


def test_an_adapter_is_what_its_section_says() -> None:
    assert lora_arguments(LoraSettings(r=4, alpha=9)) == {
        "r": 4,
        "lora_alpha": 9,
        "target_modules": "all-linear",
        "task_type": "CAUSAL_LM",
    }
    assert lora_arguments(LoraSettings(targets=("q_proj",)))["target_modules"] == ["q_proj"]


def test_every_field_of_the_section_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the keys that the functions here read; the rest is read in app/, where runs are tested."""
    seen = set[str]()

    def noted(self: Model, name: str) -> Any:
        if type(self) in (TrainSettings, LoraSettings):
            seen.add(name)
        return object.__getattribute__(self, name)

    made = config(steps=2)
    monkeypatch.setattr(Model, "__getattribute__", noted)
    settings = settings_of(made)
    batch_shape(settings, 1)
    grpo_arguments(made, BatchShape(1, 4, 2), steps=3, folder="f")
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
    with pytest.raises(ConfigError, match="RANK '2' of WORLD_SIZE '2'"):
        Ranks.of_environment()
    alone = Ranks()
    assert (alone.gather(3), alone.broadcast("x"), alone.first) == ([3], "x", True)
