"""A run as it is asked for: plain values, the same from Python and from a command line."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_practice.config import Environment, EvalConfig, PracticeConfig, read_environment
from grpo_practice.config.reading.compose import Override
from grpo_practice.config.trust.word import user_trust
from grpo_practice.llm.budget import NO_CAPS, Caps
from grpo_practice.types import Library

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The part that a practice run and an evaluation have in common."""

    config: ConfigInput | None = None
    """Configuration; None goes on with that of the latest run, else takes that of this folder."""
    sets: Sequence[str] = ()
    """Overrides as texts, `KEY=VALUE`, values read as YAML."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Overrides as typed values by dotted key; they win over `sets`."""
    env: Mapping[str, str] | None = None
    """Variables that the configuration may name; None: the process's, and those of `.env`."""
    verify: str | Callable[..., Any] | None = None
    """Verify function in place of the configured one: its name, or a Python function."""
    caps: Caps = NO_CAPS
    restart_step: int | None = None
    """First step to play afresh; None continues."""
    again: bool = False
    """Whether to repeat the restart at `restart_step`, even if it is under way or finished."""

    @property
    def overrides(self) -> list[Override]:
        """Both kinds of overrides, in the order in which they are laid over the config."""
        return [*self.sets, *self.values.items()]

    def environment(self) -> Environment:
        """Return the variables; those of the process where none are given. See `known`."""
        return known(self.env)


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeRequest(RunRequest):
    """A practice run as it is asked for."""

    agent: Callable[..., Any] | None = None
    """Python function that plays, as one of `type: python`."""
    start: str | Path | Library | None = None
    """Library to start from: `RUN[:STEP]`, a file, or itself; None: the run's own, else an empty
    one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest(RunRequest):
    """An evaluation as it is asked for; agent, model, verify and library name it."""

    agent: Path | Callable[..., Any] | None = None
    """Agent's file, as `export-agent` writes it, or a Python function that plays."""
    model: str | None = None
    """Model in place of the configured one."""
    library: str | Library | None = None
    """Library that is put into the agent: `RUN[:STEP]` or itself."""
    limit: int | None = None
    """Most questions to ask."""
    rejudge: bool = False
    """Whether to score rollouts there are with `verify`, in place of playing."""
    run: str | None = None
    """Run to be configured as, or with `rejudge` the one whose rollouts are scored again; None: the
    config's, else the latest."""
