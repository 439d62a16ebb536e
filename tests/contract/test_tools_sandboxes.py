"""What the backends of code ask of `bwrap` and `docker`, and why one is not used."""

import os
import sys
from itertools import pairwise
from pathlib import Path
from venv import EnvBuilder

import pytest

from tests.contract.clerk import Student, config, played, refused, turn
from tests.contract.command import Gp
from tests.contract.endpoint.server import serving
from tests.contract.machines import StandIn, call, kit


@pytest.mark.parametrize("backend", ["bwrap", "docker"])
def test_a_sandbox_is_asked_for_no_network_no_rights_and_limits(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    stand_in = StandIn(backend, tmp_path / "bin", monkeypatch)
    more = {"image": "some/image"} if backend == "docker" else {}
    frozen = "import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(9)"
    code = "7 * 6" if backend == "bwrap" else frozen
    clerk = played(gp, kit(backend=backend, **more), turn(call("6 * 7"), call(code, 3)))
    stopped = "[stopped after 3 s, its time limit]"
    assert clerk.results == ["42", "42" if backend == "bwrap" else stopped]
    where = {"bwrap": "bwrap 0.8.1, python 3", "docker": "docker 99.1, some/image, python 3"}
    assert f"tools: execute_python_code ({where[backend]}" in clerk.notices
    tried, *runs = (words for words in stand_in.log("words") if "--" in words)
    assert len(runs) == 2, "it was tried before it was used"
    line = " ".join(tried[: tried.index("--")])
    wanted = {
        "docker": [
            *("run --rm --interactive --name grpo-practice-", "--pull never", "--network none"),
            *("--read-only", "--tmpfs /tmp:rw,nosuid,nodev,size=64m", "--user 65534:65534"),
            *("--memory 576m --memory-swap 576m", "--pids-limit 64", "--cap-drop ALL"),
            *("--security-opt no-new-privileges", "--log-driver none", "--entrypoint python3"),
        ],
        "bwrap": [
            *("--new-session --die-with-parent --clearenv", "--setenv HOME /tmp"),
            *("--ro-bind-try /usr /usr", "--proc /proc --dev /dev", "--remount-ro /dev"),
            *("--perms 1777 --size 67108864 --tmpfs /tmp", "--remount-ro / --chdir /tmp"),
            "--unshare-net --unshare-uts --unshare-cgroup-try --cap-drop ALL"
            if os.geteuid() == 0
            else "--unshare-all --unshare-user --disable-userns --uid 65534 --gid 65534",
        ],
    }
    assert [flag for flag in wanted[backend] if flag not in line] == []
    assert tried[tried.index("--") + 2 :][:3] == ["-I", "-B", "-u"]
    assert " --bind " not in line
    if backend == "docker":
        names = [words[words.index("--name") + 1] for words in (tried, *runs)]
        assert len(set(names)) == 3
        (killed,) = (words for words in stand_in.log("words") if words[0] == "kill")
        assert killed[1] in names, "a container is killed by its name"
    elif os.uname().machine in ("x86_64", "aarch64"):
        assert all(size and size % 8 == 0 for size in stand_in.log("filter")), "no seccomp filter"


@pytest.mark.long
def test_a_backend_that_does_not_do_its_work_costs_no_request(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bwrap, docker = (StandIn(name, tmp_path / "bin", monkeypatch) for name in ("bwrap", "docker"))
    image, fault = {"backend": "docker", "image": "some/image"}, "bwrap: setting up uid map: no"
    reached = "its code can reach the network (127.0.0.1)"
    for stand_in, does, settings, why in (
        (bwrap, {"version": "bubblewrap 0.6.1"}, {}, "its version is 'bubblewrap 0.6.1'"),
        (bwrap, {"version": "what"}, {}, "its version is 'what'"),
        (bwrap, {"first": f"sys.exit({fault!r})"}, {}, f"could not be started: {fault}"),
        (bwrap, {"first": says("\\6[41, 1, 2, 3]")}, {}, "a trial run computed 6 * 7 as 41"),
        (bwrap, {"first": says("\\6no idea")}, {}, "a trial run printed: no idea"),
        (bwrap, {"closed": False}, {}, reached),
        (docker, {"closed": False}, image, reached),
        (docker, {"version": "No daemon runs", "code": 1}, image, "no engine answers: No daemon"),
    ):
        name = settings.get("backend", "bwrap")
        stand_in.does(**does)
        said = refused(gp, kit(**{"backend": name} | settings)).err
        assert f"the backend {name} does not work here: {why}" in said, (does, settings)
        assert "subprocess runs anywhere" in said
        assert f"{name} needs" not in said, "it is not recommended in place of itself"


def says(text: str) -> str:
    return f"os.write(1, b'{text}'); os._exit(0)"


@pytest.mark.long
def test_what_cannot_be_a_backend_is_said_with_the_way_out(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "py").symlink_to("/usr/bin/env")
    with monkeypatch.context() as patch:
        patch.setenv("MONTY_BIN", str(tmp_path / "none"))
        assert "the backend monty does not work here" in refused(gp, kit()).err
    no_such = {"backend": "bwrap", "python": "./none"}
    StandIn("bwrap", tmp_path / "bin", monkeypatch)
    for settings, why in (
        ({"backend": "docker"}, "needs an image"),
        ({"backend": "bwrap", "image": "python"}, "does not use image"),
        ({"python": "python3"}, "monty does not use python"),
        ({**DOCKER, "python": "b"}, "docker does not use python"),
        *(
            ({"backend": "docker", "image": image}, "is not a valid image name")
            for image in ("--privileged", "-v=/:/host", "a b", "", "a\n", "a,b")
        ),
        ({"backend": "subprocess", "python": "./py"}, "./py is not a Python"),
        (no_such, "cannot find the program ./none"),
    ):
        assert why in refused(gp, kit(**settings)).err, settings
    with monkeypatch.context() as patch:
        patch.setenv("HOME", str(Path(sys.prefix) / "home"))
        for backend in ("bwrap", "subprocess"):
            assert "contains your home" in refused(gp, kit(backend=backend)).err
    monkeypatch.setenv("PATH", str(tmp_path))
    digest = {"backend": "docker", "image": f"x/y@sha256:{'0' * 64}"}
    for settings, why in (
        (digest, "cannot find the program docker"),
        (
            {"backend": "bwrap"},
            "cannot find the program bwrap\nhint: install the package bubblewrap",
        ),
        (DOCKER, "cannot find the program docker\nhint: install it, or choose another"),
    ):
        assert why in refused(gp, kit(**settings)).err, settings


DOCKER = {"backend": "docker", "image": "a.b:5000/C/d_e:3.12-slim"}


@pytest.mark.long
def test_an_interpreter_of_the_config_runs_in_the_sandbox_alone(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in, ran = StandIn("bwrap", tmp_path / "bin", monkeypatch), tmp_path / "ran"
    for where in ("x", "fake/bin/python", "linked/bin/python"):
        path = tmp_path / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {ran}\n")
        path.chmod(0o755)
        if where.startswith("fake"):
            (path.parents[1] / "lib/python3.13").mkdir(parents=True)
            (path.parents[1] / "lib/python3.13/os.py").touch()
        if where.startswith("linked"):
            (path.parents[1] / "pyvenv.cfg").write_text(f"home = {tmp_path.parent}\n")
        stand_in.does(first="sys.exit('not here')")
        said = refused(gp, kit(backend="bwrap", python=f"./{where}")).err
        assert "the backend bwrap does not work here" in said
        assert not ran.exists()
        started = [words for words in stand_in.log("words") if "--" in words]
        assert len(started) == where.startswith("fake"), "only what looks like a Python is tried"
        assert where.startswith("fake") or "is not a Python interpreter" in said


def test_code_is_shown_the_interpreter_and_nothing_of_the_project(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in, venv = StandIn("bwrap", tmp_path / "bin", monkeypatch), tmp_path / "venv"
    EnvBuilder(symlinks=True).create(venv)
    secret = tmp_path / "secret"
    for folder in (secret, venv / "here", venv / "there", venv / "root" / "sub"):
        folder.mkdir(parents=True)
    (venv / "root" / "pyproject.toml").touch()
    settings = kit(backend="bwrap", python=str(venv / "bin/python"))

    def shown(folder: str) -> tuple[set[str], set[str], str]:
        """Return the folders that are shown and hidden from code, and what was said."""
        stand_in.does()
        monkeypatch.chdir(venv / folder)
        config({"toolkits": settings}, server.url)
        for file in ("c.yaml", "one.jsonl"):
            Path(file).replace(venv / "there" / file)
        said = gp("eval", "--config", str(venv / "there" / "c.yaml")).err
        words: list[str] = next((words for words in stand_in.log("words") if "--" in words), [])
        pairs = list(pairwise(words))
        return (
            {place for flag, place in pairs if flag == "--ro-bind"},
            {place for flag, place in pairs if flag == "--tmpfs"} - {"/tmp", "/dev/shm"},
            said,
        )

    with serving(Student()) as server:
        seen, hidden, _ = shown("here")
        assert str(venv) in seen
        assert hidden == {str(venv / "here"), str(venv / "there")}
        assert shown("root/sub")[1] == {
            str(venv / "root"),
            str(venv / "root/sub"),
            str(venv / "there"),
        }
        said = " ".join(shown("")[2].split())
        assert f"{venv} is both the folder of your project and one that code must read" in said
        cfg = venv / "pyvenv.cfg"
        cfg.write_text(f"home = {secret}/bin\n")
        assert str(secret) not in shown("here")[0]
