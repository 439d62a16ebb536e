from pathlib import Path

import pytest

from grpo_practice.config.identity import EFFECTS, identity_of
from grpo_practice.config.reading.load import load_eval, load_practice
from grpo_practice.config.reading.problems import keys_of
from grpo_practice.config.schema.base import Effect
from grpo_practice.config.schema.runs import PracticeConfig, VerifySpec
from grpo_practice.core.errors import ConfigError
from grpo_practice.store.identity import diff
from tests.config.files import EVAL, PRACTICE, write


def test_every_config_field_has_an_effect_and_every_effect_a_field() -> None:
    fields = set(keys_of(PracticeConfig))
    assert {f"evaluation.verify.{name}" for name in VerifySpec.model_fields} <= fields
    assert fields == set(EFFECTS)


def test_a_key_whose_type_says_nothing_is_part_of_the_identity() -> None:
    assert EFFECTS["practice.grpo_n"] == Effect.IDENTITY
    assert EFFECTS["practice.epochs"] == Effect.EXTEND
    assert EFFECTS["practice.teacher_model.model_params.temperature"] == Effect.ELSEWHERE


def identity(tmp_path: Path, *flags: str, env: dict[str, str] | None = None) -> dict[str, object]:
    path = write(tmp_path, {"p.yaml": PRACTICE})
    return identity_of(load_practice(path, flags, env or {}).config)


@pytest.mark.parametrize(
    "flag",
    [
        "practice.grpo_n=3",
        "practice.seed=1",
        "practice.rollout_temperature=1.0",
        "practice.learning_objective=x",
        "practice.teacher_model.model_provider.model=sim:t",
        "practice.drop_last=true",
        "practice.overlap=0.5",
        "practice.summaries=never",
        "practice.teacher_context=9000",
        "practice.answer_guard=false",
        "evaluation.agent.agent.instructions=x",
        "evaluation.agent.model.model_provider.model=sim:x",
        "evaluation.agent.model.model_settings.temperature=0.5",
        "evaluation.agent.model.model_settings.reasoning={effort: low}",
        "evaluation.agent.model.model_settings.extra_body={a: 1}",
        "evaluation.agent.model.model_settings.extra_args={a: 1}",
        "evaluation.agent.model.model_params.temperature=0.5",
        "evaluation.agent.max_turns=2",
        "evaluation.verify=exact",
        "evaluation.verify={name: math, strict: true}",
    ],
)
def test_what_changes_results_changes_the_identity(tmp_path: Path, flag: str) -> None:
    assert diff(identity(tmp_path), identity(tmp_path, flag))


@pytest.mark.parametrize(
    "flag",
    [
        "exp_id=other",
        "practice.epochs=9",
        "practice.do_eval=false",
        "practice.rollout_concurrency=9",
        "practice.task_timeout=9",
        "practice.max_failed_share=0.9",
        "practice.restart_step=0",
        "practice.prompts_dir=x",
        "data.practice_dataset_name=Q",
        "evaluation.pass_k=9",
        "evaluation.concurrency=9",
        "evaluation.seed=9",
        "evaluation.batch_size=9",
        "evaluation.verify={name: math, timeout_s: 9}",
        "evaluation.agent.model.model_settings.extra_headers={X: y}",
        "evaluation.agent.model.model_settings.extra_args={timeout: 9}",
        "evaluation.agent.model.model_provider.base_url=http://h/v1",
        "evaluation.agent.model.model_provider.requests_per_minute=60",
        "evaluation.agent.model.model_provider.tokens_per_minute=90000",
        "evaluation.agent.model.model_provider.stream=true",
        "evaluation.agent.model.model_provider.send_seed=false",
        "evaluation.agent.model.model_provider.max_reply_mib=128",
    ],
)
def test_what_only_changes_how_it_is_done_does_not(tmp_path: Path, flag: str) -> None:
    assert diff(identity(tmp_path), identity(tmp_path, flag)) == []


def test_an_evaluation_is_bound_to_its_own_seed_and_its_judge(tmp_path: Path) -> None:
    path = write(tmp_path, {"e.yaml": EVAL})
    was = identity_of(load_eval(path, [], {}).config)
    now = identity_of(load_eval(path, ["seed=1", "pass_k=9", "verify=judge"], {}).config)
    changed = {c.key: (c.was, c.now) for c in diff(was, now)}
    assert changed.pop("judge_model.model_provider.model") == (None, "sim")
    assert changed["seed"] == (0, 1)
    assert changed["verify.name"] == ("math", "judge")
    assert all(key.startswith(("judge_model.", "seed", "verify.name")) for key in changed)


@pytest.mark.parametrize("body", ["{api_key: sk-body-000}", "{n: sk-model-000}"])
def test_a_body_that_holds_a_secret_is_refused(tmp_path: Path, body: str) -> None:
    flags = [
        f"evaluation.agent.model.model_settings.extra_body={body}",
        "evaluation.agent.model.model_provider.base_url=http://h/v1",
        "evaluation.agent.model.model_provider.api_key=sk-model-000",
    ]
    with pytest.raises(ConfigError, match=r"extra_body\.\w+: it contains a secret") as e:
        identity(tmp_path, *flags)
    assert "-000" not in str(e.value)
