"""Open and check a user's program on the nodes of a Ray cluster."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.processes import cores
from grpo_practice.rollout.agents.on_node import CommandSource, File, Source
from grpo_practice.rollout.agents.ray_cluster import ClusterSettings
from grpo_practice.rollout.agents.ray_program import RayProgram
from grpo_practice.run.own_code import files_of, source_of


@asynccontextmanager
async def open_ray(config: AgentConfig, folder: Path) -> AsyncIterator[RayProgram]:
    """Open the program while the block runs; raise ConfigError if it cannot be started."""
    assert config.ray is not None, "the config checks it"
    of_config = config.ray
    settings = ClusterSettings(
        of_config.address,
        of_config.num_cpus,
        of_config.resources,
        _absolute(of_config.runtime_env, folder),
    )
    program = RayProgram(_source(config, folder), settings)
    await program.start(cores())
    try:
        yield program
    finally:
        await program.close()


def _absolute(runtime_env: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the runtime environment with its paths, which are relative to `folder`, absolute."""
    found = dict(runtime_env)
    if isinstance(text := found.get("working_dir"), str):
        found["working_dir"] = _in(folder, text)
    if isinstance(modules := found.get("py_modules"), list):
        found["py_modules"] = [_in(folder, str(module)) for module in modules]
    return found


def _in(folder: Path, text: str) -> str:
    return text if "://" in text else str(folder / text)


def _source(config: AgentConfig, folder: Path) -> Source:
    if config.function is not None:
        return source_of(config.function, folder)
    files = files_of(config, folder)
    for name, path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"agent.command: {name} is outside the config's folder, so the nodes do not get it",
                hint="put it next to the config, or use an absolute path that exists on the nodes",
            )
    sent = (File(name, path.read_bytes(), path.stat().st_mode) for name, path in files)
    return CommandSource(config.command or (), tuple(sent))
