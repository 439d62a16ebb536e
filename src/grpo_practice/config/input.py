"""Configs and environment variables as a caller passes them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_practice.config.reading.compose import Override as Override
from grpo_practice.config.reading.env import Environment, read_environment
from grpo_practice.config.schema.runs import EvalConfig, PracticeConfig
from grpo_practice.config.trust.word import user_trust

ConfigInput = str | Path | Mapping[str, Any] | PracticeConfig | EvalConfig
"""A file, the name of a file in ./configs, YAML text (several lines), a mapping, or a typed
config.
"""


def known(
    env: Mapping[str, str] | None, files: Sequence[Path] = (), hosts: Sequence[str] = ()
) -> Environment:
    """Return the variables together with the files and hosts that the user trusts.

    Args:
        env: The variables; None reads the process environment and the `.env` file.
        files: Third-party files that the user now trusts.
        hosts: Hosts that may now receive keys.

    Raises:
        ConfigError: A `.env` file cannot be read.
    """
    if isinstance(env, Environment):
        return env
    trust = user_trust(os.environ).given(files, hosts)
    if env is None:
        return read_environment(os.environ, trust=trust)
    return Environment(env, trust=trust)
