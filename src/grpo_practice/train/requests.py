"""Requests for training: keywords in Python, options of the command."""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from grpo_practice.run.requests.base import RunRequest, number, option
from grpo_practice.run.requests.runs import CONFIG, EXP_ID

if TYPE_CHECKING:
    from grpo_practice.config.input import ConfigInput


@dataclass(frozen=True, slots=True, kw_only=True)
class _Training(RunRequest):
    """Fields shared by requests for training runs, which are not traced."""

    exp_id: str | None = option(None, EXP_ID, key="exp_id")
    dataset: str | None = option(
        None, "Dataset to train on.", key="data.practice_dataset_name", stored="datasets"
    )
    model: str | None = option(
        None, "Folder of the base model, or its name on the hub.", key="train.model"
    )
    steps: int | None = number("Number of steps.", key="train.steps")


@dataclass(frozen=True, slots=True)
class TrainRequest(_Training):
    """Request for a training run."""

    method = "train"
    config: "ConfigInput | None" = option(None, CONFIG, "--config", "-c", metavar="FILE")


@dataclass(frozen=True, slots=True)
class TuneRequest(_Training):
    """Request for a search for better training settings, with trials or a population."""

    method = "tune"
    config: "ConfigInput | None" = option(None, CONFIG, "--config", "-c", metavar="FILE")
    _: KW_ONLY
    trials: int | None = number(
        "With tune: total number of trials, including existing ones.",
        python="Total number of trials, including existing ones.",
    )
    population: int | None = number(
        "With tune: members that copy each other's weights, instead of trials.",
        python="Size of the population, for population-based training instead of trials.",
        least=2,
    )
