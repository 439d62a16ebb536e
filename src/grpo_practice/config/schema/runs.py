"""The configs of an evaluation and of a practice run. Attribute names are the YAML keys."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

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
from grpo_practice.core.text import DATA_SUFFIXES, is_data_file
from grpo_practice.core.types import Summaries

MOST = 10_000
"""Upper limit for epochs, rollouts per question and concurrent requests; more is likely a typo."""
REFERENCE_FILES: Mapping[str, Mapping[str, str]] = {
    "math.py": {"name": "math"},
    "webwalker.py": {"name": "judge", "preset": "webwalker"},
}
"""Scoring files that published configs name; a config may use them without having the files."""
_VERIFY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|.+\.py:[A-Za-z_]\w*")


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
    """A built-in name (see the README), or `path.py:function`."""
    params: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Parameters: every other key next to the name."""
    timeout_s: Operational[float | None] = Field(None, gt=0)
    """CPU seconds for scoring one answer; the wall-clock limit is ten times as long. null is the
    function's own default. For async functions and the judge, the number is a wall-clock limit."""

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
        """Whether scoring may call the judge model: true for `judge` and for user functions."""
        return self.name == "judge" or ":" in self.name


class EvalData(Model):
    """Questions of an evaluation."""

    dataset: Plan[str | None] = None
    """Name of an uploaded dataset, or a file (.jsonl, .json, .csv)."""
    type: Elsewhere[Literal["single", "mixed"]] = "single"
    """`mixed`: scores are also reported for each `source` of the samples."""
    question_field: Plan[str | None] = None
    """Field of a dataset file that holds the question."""
    gt_field: Plan[str | None] = None
    """Field of a dataset file that holds the answer."""

    _check = field_validator("dataset")(_dataset)


class ModelPrice(Model):
    """Price of a model in USD per million tokens; 0 for a model that is free."""

    input: float = Field(ge=0)
    """Price of request tokens."""
    cached_input: float | None = Field(None, ge=0)
    """Price of request tokens that the provider had cached; null is the same as `input`."""
    output: float = Field(ge=0)
    """Price of reply tokens."""
    reasoning: float | None = Field(None, ge=0)
    """Price of reply tokens used for reasoning; null is the same as `output`."""
    batch_discount: float = Field(0, ge=0, le=1)
    """Share of these prices that a request in a batch saves (`model_provider.batch`): 0.5 for half
    the price."""


class EvalConfig(Model):
    """Evaluation of an agent."""

    exp_id: Elsewhere[str] = Field(pattern=NAME)
    """Name of the experiment; in a practice config it defaults to the practice config's own."""
    agent: AgentConfig = AgentConfig()
    """The agent that answers the questions."""
    data: EvalData = EvalData()
    """The questions."""
    verify: VerifySpec
    """Verify function that scores the answers."""
    pass_k: Extend[int] = Field(1, ge=1, le=MOST)
    """Rollouts per question."""
    concurrency: Operational[int] = Field(16, ge=1, le=MOST)
    """Maximum number of rollouts in flight."""
    judge_concurrency: Operational[int] = Field(16, ge=1, le=MOST)
    """Maximum number of judge calls in flight."""
    judge_model: ModelConfig | None = None
    """The model behind `judge`; defaults to `JUDGE_LLM_*`, then to the agent's model. Null if no
    judge is called."""
    batch_size: EvalOnly[int] = Field(8, ge=1)
    """Questions per recorded step."""
    seed: EvalOnly[int] = 0
    """Seed from which the seeds of all requests are derived."""
    prices: Operational[Table[ModelPrice]] = {}  # noqa: RUF012 - pydantic copies defaults
    """Model → `{input, cached_input, output, reasoning, batch_discount}`, USD per million tokens;
    other models are priced by the price list."""

    kind: ClassVar[Literal["eval"]] = "eval"
    teacher: ClassVar[None] = None

    @property
    def evaluation(self) -> "EvalConfig":
        """This config itself, so that both kinds of config have the attribute."""
        return self

    @property
    def student(self) -> ModelConfig:
        """The model that plays rollouts."""
        return self.agent.model

    @property
    def judge(self) -> ModelConfig:
        """The model that a verify function calls, if any; defaults to the agent's model."""
        return self.judge_model or self.agent.model

    @property
    def models(self) -> dict[str, ModelConfig]:
        """The models that a run may call, by role; `readers` has the models that read web pages."""
        judge = {"judge": self.judge} if self.verify.may_ask else {}
        return {"student": self.student, **judge}

    @property
    def readers(self) -> list[ModelConfig]:
        """The models that read web pages for the agent's search toolkits."""
        kits = self.agent.toolkits.values()
        return [kit.config_llm or self.student for kit in kits if isinstance(kit, SearchToolkit)]

    @property
    def datasets(self) -> dict[str, str]:
        """The datasets that the config names, by purpose."""
        return {"evaluation": self.data.dataset} if self.data.dataset else {}

    def key(self, name: str) -> str:
        """Return the dotted YAML key of an evaluation setting in this config."""
        return name


class DataSettings(Model):
    """Samples for practice."""

    practice_dataset_name: Plan[str]
    """Name of an uploaded dataset, or a file; `practice_dataset` is an alias."""

    _check = field_validator("practice_dataset_name")(_dataset)


class PracticeSettings(Model):
    """Settings of practice."""

    epochs: Extend[int] = Field(3, ge=1, le=MOST)
    """Passes over the practice data."""
    batch_size: int = Field(64, ge=1)
    """Samples per step; each becomes one group."""
    grpo_n: int = Field(5, ge=2, le=MOST)
    """Rollouts per sample (G in the paper); at least 2, because attempts are compared."""
    rollout_concurrency: Operational[int] = Field(4, ge=1, le=MOST)
    """Maximum number of rollouts in flight."""
    rollout_temperature: float = Field(0.7, ge=0)
    """Sampling temperature of practice rollouts; evaluation uses the agent's own temperature."""
    rollout_data_truncate: int | None = Field(None, ge=1)
    """Number of samples to use; null uses all samples."""
    task_timeout: Operational[float] = Field(3600.0, gt=0)
    """Timeout in seconds for a rollout's own model and tool calls; waiting for its turn does
    not count."""
    attempts: Plan[str | None] = None
    """Attempts to learn from instead of playing: a JSON Lines file, or a run of the database; see
    docs/attempts.md. They take the place of the practice data, in one pass."""
    shuffle_data: bool = True
    """Whether each epoch has a new order of the samples, drawn from the seed."""
    drop_last: bool = False
    """Whether to skip an epoch's last batch if it is smaller than `batch_size`."""
    restart_step: Operational[int | None] = Field(None, ge=0)
    """null reuses all existing steps. N keeps the steps before N and plays the other steps
    again."""
    seed: int = 0
    """Seed for the order of samples and for all requests."""
    agent_objective: Text = ""
    """Description of the agent's task (input and output), for the teacher; taken literally."""
    learning_objective: Text = ""
    """Description of the skills that experiences should improve, for the teacher; taken
    literally."""
    given_ground_truth: bool = True
    """Whether the teacher sees reference answers and rewards."""
    num_experiences_per_query: int = Field(2, ge=1)
    """Maximum number of lessons per group."""
    teacher_model: ModelConfig | None = None
    """The model that distils experiences; defaults to the agent's model, at temperature 0."""
    summaries: Summaries = "auto"
    """Whether the teacher summarises attempts before it compares them. `auto`: only if a group's
    attempts do not fit into one prompt; attempts that fit are compared directly, which saves one
    call per attempt. `always`: as in the published pipeline. `never`: attempts are compared
    directly, shortened to fit."""
    teacher_context: int | None = Field(None, ge=2_048)
    """Context window of the teacher in tokens, request and reply together. null takes the price
    list's value for this model at this address, at most 131,072, or 32,768 if the model is not
    listed. Attempts that do not fit are shortened: first the thinking, then old tool results."""
    prompts_dir: Texts[str | None] = None
    """Folder with files that replace the teacher's built-in prompts; a simulated teacher cannot use
    it."""
    do_eval: Extend[bool] = False
    """Whether to evaluate during practice, and once before it without experiences."""
    eval_strategy: Extend[Literal["epoch", "steps"]] = "epoch"
    """When to evaluate: after each epoch, or every `eval_steps` steps."""
    eval_steps: Extend[int] = Field(1, ge=1)
    """Number of steps between evaluations."""
    eval_data_truncate: Extend[int | None] = Field(None, ge=1)
    """Number of evaluation questions to use; null uses all questions."""
    select_dataset: Extend[str | None] = None
    """Dataset that selects the step for `--step best`; it must differ from the evaluation
    dataset."""
    max_failed_share: Operational[float] = Field(0.2, ge=0, le=1)
    """Share of a step's rollouts that may fail before the run stops."""
    max_library_tokens: int | None = Field(None, ge=100)
    """Maximum number of tokens that the library takes in a prompt (one token counts as 4 bytes of
    UTF-8). The merge prompt states the limit. If the library is still longer, experiences with the
    least support are dropped, the newest first."""
    overlap: float = Field(0.0, ge=0, le=1)
    """Share of a step's groups, rounded down, that may start while the previous step waits for its
    slowest rollouts and its merge. This shortens waiting, but these groups use the library from
    before the previous step, so its lessons reach them one step late."""

    answer_guard: bool = True
    """Whether to keep an experience out of the library if it reveals a question's answer. Only
    answers that few questions of the dataset share are guarded; a label that many share
    (`entailment`, `yes`, a tool's name) may appear."""

    trusted_sites: Operational[Names] = Field((), strict=False)
    """Web sites that may support an experience alone, such as `example.com`; a host stands for its
    whole site. An experience that only one other site supports is quarantined, or held if `approve`
    is true."""

    approve: Operational[bool] = False
    """Whether a person approves new lessons. New experiences and changed texts are held until
    `grpo-practice experiences approve` lets them into the library; the run continues with the
    approved ones. Recommended if the agent reads the web."""

    _check = field_validator("select_dataset")(_dataset)

    @field_validator("trusted_sites")
    @classmethod
    def _hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST.fullmatch(name):
                raise ValueError(f"{name!r} should be only the name of a site, such as example.com")
        return tuple(name.lower() for name in names)


class PracticeConfig(Model):
    """Practice, and the evaluation of its result."""

    exp_id: Elsewhere[str] = Field(pattern=NAME)
    """Name of the experiment."""
    practice: PracticeSettings = PracticeSettings()
    """Settings of practice."""
    data: DataSettings
    """Samples for practice."""
    evaluation: EvalConfig
    """The agent, its scoring, and the questions it is evaluated on."""
    train: TrainOnly[TrainSettings | None] = None
    """Settings of `train`, which changes the weights; practice ignores them."""

    kind: ClassVar[Literal["practice"]] = "practice"

    @property
    def student(self) -> ModelConfig:
        """The model that plays rollouts, with the agent's own settings."""
        return self.evaluation.student

    @property
    def only_trains(self) -> bool:
        """Whether the config names a model to train, but no model that an endpoint serves."""
        return self.train is not None and not self.student.model_provider.model

    @property
    def teacher(self) -> ModelConfig:
        """The model that distils experiences; defaults to the agent's model."""
        return self.practice.teacher_model or self.student

    @property
    def judge(self) -> ModelConfig:
        """The model that a verify function calls, if any; defaults to the agent's model."""
        return self.evaluation.judge

    @property
    def models(self) -> dict[str, ModelConfig]:
        """The models that a run may call, by role; `readers` has the models that read web pages."""
        models = {"student": self.student, "teacher": self.teacher, **self.evaluation.models}
        tests = self.practice.do_eval or self.practice.select_dataset
        if self.practice.attempts and not tests:
            del models["student"]  # nothing is played
        return models

    @property
    def datasets(self) -> dict[str, str]:
        """The datasets that the config names, by purpose; `recorded` has attempts as well."""
        named = {
            "recorded": self.practice.attempts,
            "practice": None if self.practice.attempts else self.data.practice_dataset_name,
            "selection": self.practice.select_dataset,
            **self.evaluation.datasets,
        }
        return {use: name for use, name in named.items() if name}

    def key(self, name: str) -> str:
        """Return the dotted YAML key of an evaluation setting in this config."""
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
"""A config of either kind of run."""
