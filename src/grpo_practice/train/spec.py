"""Specification of the training run for a configuration: name, identity and stored facts."""

from grpo_practice.config import Loaded
from grpo_practice.config.identity import train_identity_of
from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.run.specs import FORMAT, judge_record, simulated
from grpo_practice.store.identity import MODEL_SHA
from grpo_practice.store.records import DatasetRow, RunSpec
from grpo_practice.store.run_names import train_name
from grpo_practice.train.recipe import settings_of
from grpo_practice.verify.resolve import VerifyFunction


def train_spec(
    loaded: Loaded[PracticeConfig],
    verify: VerifyFunction,
    dataset: DatasetRow,
    model_sha: bytes,
) -> RunSpec:
    """Return the training run for this configuration, starting from base weights with this hash."""
    config = loaded.config
    judges = [config.judge] if config.evaluation.verify.may_ask else []
    return RunSpec(
        name=train_name(config.exp_id),
        exp_id=config.exp_id,
        kind="train",
        identity=train_identity_of(config)
        | {
            MODEL_SHA: model_sha.hex(),
            "verify.sha256": verify.sha.hex(),
            "format_version": FORMAT,
        },
        config_text=loaded.text,
        base_dir=loaded.base_dir,
        dataset_id=dataset.id,
        judge=judge_record(verify, config.judge),
        purpose="train",
        k=settings_of(config).group_size,
        base_model=settings_of(config).model,
        simulated=simulated(*judges),
    )
