"""The config of an evaluation and of a practice run. Attribute names are the YAML keys."""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.base import (
    NAME,
    Elsewhere,
    EvalOnly,
    Extend,
    Model,
    Names,
    Operational,
    Plan,
    Table,
    Text,
    Texts,
    TrainOnly,
)
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.tools import SearchToolkit
from grpo_practice.config.schema.train import TrainSettings
from grpo_practice.types import Summaries

MOST = 10_000
"""Epochs, rollouts of one question, requests at once: more is a slip of the finger."""
DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".gz")
REFERENCE_FILES: Mapping[str, Mapping[str, str]] = {
    "math.py": {"name": "math"},
    "webwalker.py": {"name": "judge", "preset": "webwalker"},
}
"""Scoring files of the published configs, which a config may name without having them."""
_VERIFY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|.+\.py:[A-Za-z_]\w*")


def is_data_file(dataset: object) -> bool:
    """Return whether a dataset is given as a file rather than as an uploaded name."""
    return isinstance(dataset, str) and PurePath(dataset).suffix.lower() in DATA_SUFFIXES


_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+|\[?[0-9A-Fa-f:]+\]?")


def _dataset(value: str | None) -> str | None:
    if value is not None and not is_data_file(value) and not re.fullmatch(NAME[1:-1], value):
        raise ValueError(
            "should be the name of an uploaded dataset (letters, digits, `.`, `_`, `-`; 1 to 100,"
            f" not starting with . or -) or a file ending in {', '.join(DATA_SUFFIXES)}"
        )
    return value


class VerifySpec(Model):
    """Verify function: a built-in name or `path.py:function`, with its parameters.

    In YAML: `math`, `score.py:check`, or `{name: regex, pattern: "…", timeout_s: 5}`.
    """

    name: str
    """A built-in (README), or `path.py:function`."""
    params: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Parameters: every further key beside the name."""
    timeout_s: Operational[float | None] = Field(None, gt=0)
    """Seconds of processor time for one answer, ten times as many by the clock; null is the
    function's own default. Async functions and the judge are timed by the clock alone."""

    @model_validator(mode="before")
    @classmethod
    def _spellings(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, dict) or isinstance(value.get("params"), dict):
            return value
        own = {k: value[k] for k in ("name", "timeout_s") if k in value}
        return {**own, "params": {k: v for k, v in value.items() if k not in own}}

    @field_validator("name")
    @classmethod
    def _known_form(cls, name: str) -> str:
        if not _VERIFY.fullmatch(name):
            raise ValueError("should be a built-in name, or path.py:function")
        return name

    @property
    def may_ask(self) -> bool:
        """Whether scoring may ask the judge model: `judge` and the user's functions may."""
        return self.name == "judge" or ":" in self.name


class EvalData(Model):
    """Questions of an evaluation."""

    dataset: Plan[str | None] = None
    """Name of an uploaded dataset, or a file (.jsonl, .json, .csv)."""
    type: Elsewhere[Literal["single", "mixed"]] = "single"
    """`mixed`: also reported by the samples' `source`."""
    question_field: Plan[str | None] = None
    """Field of a dataset file that is the question."""
    gt_field: Plan[str | None] = None
    """Field of a dataset file that is the answer."""

    _check = field_validator("dataset")(_dataset)


class ModelPrice(Model):
    """Price of a model, in USD per million tokens; 0 where nobody is paid."""

    input: float = Field(ge=0)
    """Tokens of the request."""
    cached_input: float | None = Field(None, ge=0)
    """Those of them that the provider had in its cache; null is the same as `input`."""
    output: float = Field(ge=0)
    """Tokens of the reply."""
    reasoning: float | None = Field(None, ge=0)
    """Those of them that went into thinking; null is the same as `output`."""


class EvalConfig(Model):
    """Evaluation of an agent."""

    exp_id: Elsewhere[str] = Field(pattern=NAME)
    """Name of the experiment; in a practice config it defaults to that one's."""
    agent: AgentConfig = AgentConfig()
    """The agent that answers."""
    data: EvalData = EvalData()
    """The questions."""
    verify: VerifySpec
    """Verify function that scores answers."""
    pass_k: Extend[int] = Field(1, ge=1, le=MOST)
    """Rollouts per question."""
    concurrency: Operational[int] = Field(16, ge=1, le=MOST)
    """Rollouts in flight at once."""
    judge_concurrency: Operational[int] = Field(16, ge=1, le=MOST)
    """Judge calls in flight at once."""
    judge_model: ModelConfig | None = None
    """The model behind `judge`: this, else `JUDGE_LLM_*`, else the agent's. Null when none asks."""
    batch_size: EvalOnly[int] = Field(8, ge=1)
    """Questions per recorded step."""
    seed: EvalOnly[int] = 0
    """Seed from which those of all requests are derived."""
    prices: Operational[Table[ModelPrice]] = {}  # noqa: RUF012 - pydantic copies defaults
    """Model → `{input, cached_input, output, reasoning}`, USD per million tokens; else a list's."""

    kind: ClassVar[Literal["eval"]] = "eval"
    teacher: ClassVar[None] = None

    @property
    def evaluation(self) -> "EvalConfig":
        """The evaluation itself, as a practice config has one."""
        return self

    @property
    def student(self) -> ModelConfig:
        """The model that plays rollouts."""
        return self.agent.model

    @property
    def judge(self) -> ModelConfig:
        """The model that a verify function asks, if it asks one: by default the agent's."""
        return self.judge_model or self.agent.model

    @property
    def models(self) -> dict[str, ModelConfig]:
        """The models that a run may ask, by role; those that read pages are in `readers`."""
        judge = {"judge": self.judge} if self.verify.may_ask else {}
        return {"student": self.student, **judge}

    @property
    def readers(self) -> list[ModelConfig]:
        """The models that read web pages for the agent's search toolkits."""
        kits = self.agent.toolkits.values()
        return [kit.config_llm or self.student for kit in kits if isinstance(kit, SearchToolkit)]

    @property
    def datasets(self) -> dict[str, str]:
        """The datasets named, by what they are for."""
        return {"evaluation": self.data.dataset} if self.data.dataset else {}

    def key(self, name: str) -> str:
        """Return the key of a setting of the evaluation, as this config's YAML has it."""
        return name


class DataSettings(Model):
    """Samples to practise on."""

    practice_dataset_name: Plan[str]
    """Name of an uploaded dataset, or a file; `practice_dataset` is the same key."""

    _check = field_validator("practice_dataset_name")(_dataset)


class PracticeSettings(Model):
    """Settings of practice."""

    epochs: Extend[int] = Field(3, ge=1, le=MOST)
    """Passes over the practice data."""
    batch_size: int = Field(64, ge=1)
    """Samples per step; each becomes one group."""
    grpo_n: int = Field(5, ge=2, le=MOST)
    """Rollouts per sample (G in the paper); with one there is nothing to compare."""
    rollout_concurrency: Operational[int] = Field(4, ge=1, le=MOST)
    """Rollouts in flight at once."""
    rollout_temperature: float = Field(0.7, ge=0)
    """Sampling temperature of practice rollouts; evaluation keeps the agent's own."""
    rollout_data_truncate: int | None = Field(None, ge=1)
    """Use this many samples only."""
    task_timeout: Operational[float] = Field(3600.0, gt=0)
    """Seconds of a rollout's own model and tool calls; waiting for a slot does not count."""
    shuffle_data: bool = True
    """Draw a new order of the samples in each epoch, from the seed."""
    drop_last: bool = False
    """Leave out an epoch's last batch when it is smaller than `batch_size`."""
    restart_step: Operational[int | None] = Field(None, ge=0)
    """Null: reuse all there is. N: keep the steps before N, play the others afresh."""
    seed: int = 0
    """Seed of the order of samples and of all requests."""
    agent_objective: Text = ""
    """Task of the agent (input and output), for the teacher; taken literally."""
    learning_objective: Text = ""
    """Subject of experiences, for the teacher; taken literally."""
    given_ground_truth: bool = True
    """Whether the teacher may see answers and rewards."""
    num_experiences_per_query: int = Field(2, ge=1)
    """Most lessons of one group."""
    teacher_model: ModelConfig | None = None
    """The model that distils; by default the agent's, at temperature 0."""
    summaries: Summaries = "auto"
    """Whether the teacher summarises attempts before it compares them. `auto`: only where those of
    a group do not fit into one prompt; what fits is compared as it is, which is one call in place
    of one for each attempt more. `always`: the published pipeline. `never`: compared as they are,
    shortened to fit.
    """
    teacher_context: int | None = Field(None, ge=2_048)
    """Tokens that the teacher takes, request and reply together. Null: as the price list has it for
    this model at this address, at most 131,072, else 32,768. Attempts that are too long for it are
    shortened: thinking first, then old results of tools.
    """
    prompts_dir: Texts[str | None] = None
    """Folder whose files replace the shipped prompts of the teacher; not for a simulated one."""
    do_eval: Extend[bool] = False
    """Evaluate during practice, and the agent without experiences before it."""
    eval_strategy: Extend[Literal["epoch", "steps"]] = "epoch"
    """When: after each epoch, or every `eval_steps` steps."""
    eval_steps: Extend[int] = Field(1, ge=1)
    """Steps between evaluations."""
    eval_data_truncate: Extend[int | None] = Field(None, ge=1)
    """Evaluate on this many questions only."""
    select_dataset: Extend[str | None] = None
    """Dataset on which `--step best` is chosen; never the one evaluated on."""
    max_failed_share: Operational[float] = Field(0.2, ge=0, le=1)
    """Share of a step's rollouts that may fail before the run stops."""
    max_library_tokens: int | None = Field(None, ge=100)
    """Most tokens that the library takes in a prompt (a token is 4 bytes of UTF-8). The merge is
    told, and what is beyond goes: what the fewest questions support first, of these the youngest.
    """
    group_policy: Literal["fixed", "skip_uniform"] = "fixed"
    """`skip_uniform`: from the second epoch on, a question is left out with probability ½ where its
    last group was not informative: with three epochs about a fifth fewer rollouts. This cost no
    gain in simulation with 100 questions, and much with 20. A mean reward counts such a group twice
    where it is played.
    """
    overlap: float = Field(0.0, ge=0, le=1)
    """Share of a step's groups, rounded down, that may be played while the step before waits for
    its slowest rollouts and its merge. Less waiting; these groups are played with the library of
    the step before, so what that step teaches reaches them one step late. 0 with `skip_uniform`.
    """

    answer_guard: bool = True
    """Whether an experience that gives the answer of a question away is kept out of the library.
    Guarded is what few questions of the dataset have as their answer; a label that many share
    (`entailment`, `yes`, the name of a tool) may be named.
    """

    trusted_sites: Operational[Names] = Field((), strict=False)
    """Web sites that may support an experience alone, as `example.com`; a host stands for its whole
    site. An experience that only one other site supports is quarantined, or held if `approve` is
    true.
    """

    approve: Operational[bool] = False
    """Whether a person approves what is learnt: new experiences, and new texts of experiences, are
    held, and enter the library with `grpo-practice experiences approve`. The run goes on meanwhile,
    with what is approved. Wise where the agent reads the web.
    """

    _check = field_validator("select_dataset")(_dataset)

    @field_validator("trusted_sites")
    @classmethod
    def _hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST.fullmatch(name):
                raise ValueError(f"{name!r} should be the name of a site alone, as example.com")
        return tuple(name.lower() for name in names)

    @field_validator("overlap")
    @classmethod
    def _early(cls, share: float, info: ValidationInfo) -> float:
        if share and info.data.get("group_policy") == "skip_uniform":
            raise ValueError(
                "has to be 0 with practice.group_policy skip_uniform: early groups begin before it"
                " is known which questions were not informative"
            )
        return share


class PracticeConfig(Model):
    """Practice, and the evaluation of its result."""

    exp_id: Elsewhere[str] = Field(pattern=NAME)
    """Name of the experiment."""
    practice: PracticeSettings = PracticeSettings()
    """Settings of practice."""
    data: DataSettings
    """Samples to practise on."""
    evaluation: EvalConfig
    """The agent, how it is scored, and what it is evaluated on."""
    train: TrainOnly[TrainSettings | None] = None
    """Settings of `train`, which changes weights; practice does not read them."""

    kind: ClassVar[Literal["practice"]] = "practice"

    @property
    def student(self) -> ModelConfig:
        """The model that plays rollouts, with the agent's own settings."""
        return self.evaluation.student

    @property
    def only_trains(self) -> bool:
        """Whether there is a model to train, and none that an endpoint serves."""
        return self.train is not None and not self.student.model_provider.model

    @property
    def teacher(self) -> ModelConfig:
        """The model that distils: by default the agent's."""
        return self.practice.teacher_model or self.student

    @property
    def judge(self) -> ModelConfig:
        """The model that a verify function asks, if it asks one: by default the agent's."""
        return self.evaluation.judge

    @property
    def models(self) -> dict[str, ModelConfig]:
        """The models that a run may ask, by role; those that read pages are in `readers`."""
        return {"student": self.student, "teacher": self.teacher, **self.evaluation.models}

    @property
    def datasets(self) -> dict[str, str]:
        """The datasets named, by what they are for."""
        named = {
            "practice": self.data.practice_dataset_name,
            "selection": self.practice.select_dataset,
            **self.evaluation.datasets,
        }
        return {use: name for use, name in named.items() if name}

    def key(self, name: str) -> str:
        """Return the key of a setting of the evaluation, as this config's YAML has it."""
        return f"evaluation.{name}"

    @model_validator(mode="after")
    def _sound(self) -> "PracticeConfig":
        tested = self.evaluation.data.dataset
        if self.practice.do_eval and tested is None:
            raise ValueError("practice.do_eval needs evaluation.data.dataset")
        if tested is not None and self.practice.select_dataset == tested:
            raise ValueError(
                "practice.select_dataset is the dataset evaluated on; choosing the best step on the"
                " test set would make its score worthless"
            )
        if self.train and self.train.eval_every and not self.practice.select_dataset:
            raise ValueError("train.eval_every needs practice.select_dataset")
        return self


RunConfig = PracticeConfig | EvalConfig
"""The config of a run of either kind."""
