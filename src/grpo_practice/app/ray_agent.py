"""A program of the user's that plays on the nodes of a Ray cluster: opened, and looked at."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from grpo_practice.agents.on_node import CommandSource, File, Source
from grpo_practice.agents.ray_cluster import ClusterSettings
from grpo_practice.agents.ray_program import RayProgram
from grpo_practice.app.program_files import files_of, source_of
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.processes import cores


@asynccontextmanager
async def open_ray(config: AgentConfig, folder: Path) -> AsyncIterator[RayProgram]:
    """Open the program for the block; raise ConfigError where it cannot be had."""
    assert config.ray is not None, "the config checks it"
    of_config = config.ray
    settings = ClusterSettings(
        of_config.address, of_config.num_cpus, of_config.resources, of_config.runtime_env
    )
    program = RayProgram(_source(config, folder), settings)
    await program.start(cores())
    try:
        yield program
    finally:
        await program.close()


def _source(config: AgentConfig, folder: Path) -> Source:
    if config.function is not None:
        return source_of(config.function, folder)
    files = (File(n, p.read_bytes(), p.stat().st_mode) for n, p in files_of(config, folder))
    return CommandSource(config.command or (), tuple(files))
