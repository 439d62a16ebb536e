"""Configurations and variables as a caller gives them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_practice.config.reading.compose import Override as Override
from grpo_practice.config.reading.env import Environment, read_environment
from grpo_practice.config.schema.runs import EvalConfig, PracticeConfig
from grpo_practice.config.trust.word import user_trust

ConfigInput = str | Path | Mapping[str, Any] | PracticeConfig | EvalConfig
"""A file, the name of one in ./configs, YAML text (several lines), its mapping, or typed."""


def known(
    env: Mapping[str, str] | None, files: Sequence[Path] = (), hosts: Sequence[str] = ()
) -> Environment:
    """Return the variables, those of the process where none are given, and whom the user trusts.

    `files` are files of others that are trusted from now on; `hosts` may be sent keys from now on.

    Raises:
        ConfigError: There is a `.env` that cannot be read.
    """
    if isinstance(env, Environment):
        return env
    trust = user_trust(os.environ).given(files, hosts)
    if env is None:
        return read_environment(os.environ, trust=trust)
    return Environment(env, trust=trust)
