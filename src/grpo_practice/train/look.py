"""Check made by `doctor` before training: the extra and the base model."""

from pathlib import Path

from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.findings import Finding, ok, problem
from grpo_practice.run.weights import check_no_code, check_weights, local_folder
from grpo_practice.train.checks import check_installed


def look_at_training(config: PracticeConfig, folder: Path) -> list[Finding]:
    """Check the extra and the base model, if the configuration trains one."""
    if config.train is None:
        return []
    try:
        check_installed()
        model = local_folder(config.train.model, folder)
        if model is None:
            return [ok("train", f"the extra is installed; {config.train.model} comes from the hub")]
        check_no_code(model)
        check_weights(model)
    except ConfigError as e:
        return [problem("train", e)]
    return [ok("train", f"the extra is installed, and {model} can be trained")]
