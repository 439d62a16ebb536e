"""The backend `docker`, with a program in the place of its client: no engine is needed."""

import os
import stat
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from grpo_practice.config.schema.tools import PythonConfig
from grpo_practice.tools.python.docker import container
from tests.tools.python.running import opened, refusal, said

FAKE = """#!{python}
import os, sys
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:3] if sys.argv[1] != "run" else sys.argv[1:2]) + chr(10))
if sys.argv[1] == "version":
    print({version!r})
    sys.exit({rc})
if sys.argv[1] == "run":
    at = sys.argv.index("some/image")
    os.execv(sys.executable, [sys.executable, *sys.argv[at + 1:]])
"""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What a client on the PATH is asked; its engine is this machine."""
    log = tmp_path / "log"
    fake(tmp_path, log, "99.1", 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return log


def asked(log: Path) -> list[str]:
    """What the client was asked, in order."""
    return log.read_text().splitlines()


def fake(folder: Path, log: Path, version: str, rc: int) -> None:
    path = folder / "docker"
    path.write_text(FAKE.format(python=sys.executable, log=str(log), version=version, rc=rc))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_container_has_no_network_no_rights_and_limits() -> None:
    start = container("docker", "some/image", 512)
    line = " ".join(start.command[: start.command.index("some/image")])
    for flag in (
        *("run --rm --interactive --name grpo-practice-", "--pull never", "--network none"),
        *("--read-only", "--tmpfs /tmp:rw,nosuid,nodev,size=64m", "--user 65534:65534"),
        *("--memory 576m --memory-swap 576m", "--pids-limit 64", "--cap-drop ALL"),
        *("--security-opt no-new-privileges", "--log-driver none", "--entrypoint python3"),
    ):
        assert flag in line
    assert start.command[start.command.index("some/image") + 1 :][:3] == ["-I", "-B", "-u"]
    name = start.command[start.command.index("--name") + 1]
    assert start.kill == ("docker", "kill", name)
    assert container("docker", "some/image", 512).kill != start.kill


@pytest.mark.parametrize("image", ["--privileged", "-v=/:/host", "a b", "", "a\n", "a,b"])
def test_no_image_becomes_an_option(image: str) -> None:
    with pytest.raises(ValidationError, match="is no name of an image"):
        PythonConfig.model_validate({"backend": "docker", "image": image})
    command = list(container("docker", image, 512).command)
    assert command[command.index("--") + 1] == image


@pytest.mark.parametrize(
    "image",
    ["python", "3f2a", "a.b:5000/C/d_e:3.12-slim", f"x/y@sha256:{'0' * 64}"],
)
def test_the_usual_names_of_images_are_taken(image: str) -> None:
    assert PythonConfig.model_validate({"backend": "docker", "image": image}).image == image


async def test_no_engine_is_said_with_the_client_s_words(log: Path) -> None:
    fake(log.parent, log, "Cannot connect to the Docker daemon. Is it running?", 1)
    error = await refusal("docker", image="some/image")
    assert str(error) == (
        "python_executor: the backend docker does not work here: no engine answers: Cannot connect"
        " to the Docker daemon. Is it running?"
    )
    assert "bwrap needs Linux" in (error.hint or "")


async def test_a_container_with_a_network_is_not_used(log: Path) -> None:
    error = await refusal("docker", image="some/image")
    assert "code in it reaches the network (127.0.0.1)" in str(error)
    assert asked(log) == ["version --format", "run"]


async def test_a_container_is_killed_by_name_when_it_does_not_end(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trusted(name: str, run: object, *, closed: bool) -> tuple[str, str]:
        assert (name, closed) == ("docker", True)
        return "3.99.0", "Python 3.99"

    monkeypatch.setattr("grpo_practice.tools.python.docker.try_backend", trusted)
    monkeypatch.setattr("grpo_practice.tools.python.cpython.GRACE_S", 0.2)
    async with opened("docker", image="some/image") as tool:
        assert tool.runs_in == "docker 99.1, some/image, python 3.99.0"
        assert await said(tool, "6 * 7") == "42"
        assert asked(log) == ["version --format", "run"]
        stopped = "import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(9)"
        assert await said(tool, stopped, timeout=1) == "[stopped after 1 s, the time it had]"
    assert asked(log)[-1].startswith("kill grpo-practice-")
