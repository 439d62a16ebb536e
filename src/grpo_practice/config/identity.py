"""Which config keys a branch of a run is bound to.

The caller adds what no config holds: the verify file's hash, the start library,
the format version, the planned samples.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.config.schema.tools import what_answers
from grpo_practice.config.show import redacted

Class = Literal["identity", "eval", "plan", "extend", "operational", "texts", "elsewhere"]
"""What a change of a key means for a run that exists.

- identity: refused, with a diff
- eval: identity of an evaluation run; nothing to a practice run
- plan: stored as the ordered samples of the steps already planned
- extend: allowed; only the missing part is played
- operational: free
- texts: a run goes on with the texts stored at its start
- elsewhere: a name, or already contained in another key
"""


def _of(kind: Class, prefix: str, names: str) -> dict[str, Class]:
    return {f"{prefix}{name}": kind for name in names.split()}


def _model(prefix: str, params: Class = "elsewhere") -> dict[str, Class]:
    """The keys of one model; its `model_params` are contained in the settings of its role."""
    provider, settings = f"{prefix}.model_provider.", f"{prefix}.model_settings."
    return {
        **_of("identity", provider, "type model"),
        **_of("operational", provider, "base_url api_key origin key_origin"),
        **_of("operational", provider, "requests_per_minute tokens_per_minute stream send_seed"),
        **_of(
            "identity",
            settings,
            "temperature top_p frequency_penalty presence_penalty max_tokens tool_choice"
            " parallel_tool_calls reasoning.effort verbosity top_logprobs extra_body extra_args",
        ),
        **_of(
            "operational",
            settings,
            "metadata store prompt_cache_retention include_usage extra_query extra_headers",
        ),
        **_of(params, f"{prefix}.model_params.", "temperature top_p parallel_tool_calls"),
    }


CLASSES: Mapping[str, Class] = {
    "exp_id": "elsewhere",
    **_of(
        "identity",
        "practice.",
        "batch_size grpo_n rollout_temperature rollout_data_truncate shuffle_data drop_last seed"
        " agent_objective learning_objective given_ground_truth num_experiences_per_query"
        " gate max_library_tokens group_policy overlap answer_guard summaries teacher_context",
    ),
    **_model("practice.teacher_model"),
    "practice.prompts_dir": "texts",
    **_of(
        "extend",
        "practice.",
        "epochs do_eval eval_strategy eval_steps eval_data_truncate select_dataset",
    ),
    **_of(
        "operational", "practice.", "rollout_concurrency task_timeout restart_step max_failed_share"
    ),
    "practice.preset": "elsewhere",
    "data.practice_dataset_name": "plan",
    "evaluation.exp_id": "elsewhere",
    **_of(
        "identity",
        "evaluation.agent.",
        "type agent.name agent.instructions toolkits max_turns stop_at_tool_names function command",
    ),
    **_model("evaluation.agent.model"),
    **_of("plan", "evaluation.data.", "dataset question_field gt_field"),
    "evaluation.data.type": "elsewhere",
    **_of("identity", "evaluation.verify.", "name params"),
    "evaluation.verify.timeout_s": "operational",
    "evaluation.pass_k": "extend",
    **_of("operational", "evaluation.", "concurrency judge_concurrency prices"),
    **_model("evaluation.judge_model"),
    **_of("eval", "evaluation.", "batch_size seed"),
}
"""Every field of a practice config; those of an evaluation without their `evaluation.`."""


def flat(config: RunConfig) -> dict[str, Any]:
    """Every key of the config in dotted form with its value as JSON, secrets hidden.

    A model that is null has no keys. Mappings that are free in form are one value.
    """
    return dict(_leaves(redacted(config), "" if config.kind == "practice" else "evaluation."))


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if key in CLASSES:
            yield key, value
        elif isinstance(value, dict):
            yield from _leaves(value, f"{key}.")
        elif value is not None:
            raise KeyError(key)


def identity_of(config: RunConfig) -> dict[str, Any]:
    """The keys a branch is bound to, dotted as in the config's own YAML, values as JSON.

    `extra_args.timeout` is left out: how long we wait does not change what is asked; and so is
    where the services behind tools are.
    """
    practice = config.kind == "practice"
    bound: tuple[Class, ...] = ("identity",) if practice else ("identity", "eval")
    out = {}
    for key, value in flat(config).items():
        if CLASSES[key] not in bound:
            continue
        if key.endswith(".extra_args") and value:
            value = {k: v for k, v in value.items() if k != "timeout"} or None
        if key.endswith(".toolkits"):
            value = {name: what_answers(toolkit) for name, toolkit in value.items()}
        out[key if practice else key.removeprefix("evaluation.")] = value
    return out
