"""The backend `docker`: CPython in a separate container, without a network."""

import asyncio
import contextlib
import secrets
import shutil
from asyncio.subprocess import PIPE, STDOUT

from grpo_practice.rollout.tools.python.backend import Backend, refused
from grpo_practice.rollout.tools.python.cpython import (
    ENVIRONMENT,
    FILE_MB,
    PROCESSES,
    Launch,
    execute,
    python_arguments,
)
from grpo_practice.rollout.tools.python.probe import try_backend

ABOUT = "no network; files can be written in /tmp and are gone after the call"
_ANSWER_S = 20.0
"""Maximum seconds to wait for an engine to report its version."""
_BESIDE_MB = 64
"""MiB that a container has in addition to one process's limit, for the supervising program."""


async def open_docker(image: str, memory_mb: int) -> Backend:
    """Return the backend after a trial run.

    The image must exist locally: nothing is downloaded.

    Raises:
        ConfigError: The backend does not work here.
    """
    docker = shutil.which("docker")
    if docker is None:
        raise refused("docker", "cannot find the program docker", "install it")
    engine = await _engine(docker)

    async def run(code: str, limit_s: float) -> str:
        start = container(docker, image, memory_mb)
        return await execute(start, code, limit_s=limit_s, memory_mb=memory_mb)

    ran, able = await try_backend("docker", run, closed=True)
    return Backend(run, f"docker {engine}, {image}, python {ran}", f"{able}; {ABOUT}")


def container(docker: str, image: str, memory_mb: int) -> Launch:
    """Return the description of one execution in a container that is removed when it ends.

    The container's first process ends when its stdin closes, so the container ends with the client,
    no matter how the client ends.
    """
    name = f"grpo-practice-{secrets.token_hex(8)}"
    memory = f"{memory_mb + _BESIDE_MB}m"
    env = ENVIRONMENT | {"HOME": "/tmp"}
    command = [
        *(docker, "run", "--rm", "--interactive", "--name", name, "--pull", "never"),
        *("--network", "none", "--read-only", "--tmpfs", f"/tmp:rw,nosuid,nodev,size={FILE_MB}m"),
        # Memory and swap together: without it, the container could use as much swap again.
        *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(PROCESSES), "--cpus=1"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534"),
        *("--ipc", "private", "--shm-size", f"{FILE_MB}m", "--workdir", "/tmp"),
        *(f"--env={key}={value}" for key, value in env.items() if key != "PATH"),
        # No log: otherwise the engine stores the output of the code on disk.
        *("--log-driver", "none", "--entrypoint", "python3"),
        # After `--`, an image name cannot be read as an option.
        *("--", image, *python_arguments()),
    ]
    return Launch(command, {}, None, kill=(docker, "kill", name))


async def _engine(docker: str) -> str:
    """Return the version of the engine; raise ConfigError if no engine responds."""
    process = await asyncio.create_subprocess_exec(
        docker, "version", "--format", "{{.Server.Version}}", stdout=PIPE, stderr=STDOUT
    )
    try:
        async with asyncio.timeout(_ANSWER_S):
            said = (await process.communicate())[0].decode(errors="replace").strip()
    except TimeoutError:
        said = f"no answer within {_ANSWER_S:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode != 0:
        raise refused("docker", f"no engine answers: {said[-300:]}", "start it")
    return said
