"""The backend `bwrap`: how it is called, and that it is tried before it is trusted."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import replace
from pathlib import Path
from venv import EnvBuilder

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.rollout.tools.python import cpython
from grpo_practice.rollout.tools.python.bwrap import Sandbox
from grpo_practice.rollout.tools.python.cpython import execute
from grpo_practice.rollout.tools.python.interpreter import Interpreter, installed
from grpo_practice.rollout.tools.python.probe import try_backend
from tests.contract.machines import bwrap_works
from tests.rollout.tools.python.running import opened, refusal, said

needs_bwrap = pytest.mark.skipif(not bwrap_works(), reason="bwrap does not work here")


async def sandbox(*, root: bool) -> Sandbox:
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    return Sandbox(bwrap, installed(None, Path()), (0, 8, 0), root=root)


@needs_bwrap
async def test_of_the_disk_it_sees_the_system_and_the_interpreter_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    async with opened("bwrap") as tool:
        code = "import os\nfor path in {}:\n    print(os.path.exists(path))"
        hidden = [str(tmp_path / "mine"), "/etc/passwd", __file__, "/var", "/home", "/sys"]
        hidden.append(str(Path.home() / ".profile"))
        assert set((await said(tool, code.format(hidden))).split()) == {"False"}
        writes = ["/x", "/usr/x", "/dev/x", str(Path(sys.prefix) / "x"), "/proc/x"]
        code = "for path in {}:\n    try:\n        open(path, 'w')\n    except OSError: pass\n"
        assert await said(tool, code.format(writes) + "    else: print(path)\n'none'") == "'none'"
        full = "for i in range(3):\n    open(f'/tmp/{i}', 'wb').write(b'x' * (50 * 2**20))"
        assert "No space left on device" in await said(tool, full)
        shared = full.replace("/tmp", "/dev/shm")
        assert "No space left on device" in await said(tool, shared)
        tmp, own = Path("/tmp"), Path(sys.prefix)
        mine = [own.relative_to(tmp).parts[0]] if own.is_relative_to(tmp) else []
        assert await said(tool, "import os\nos.listdir('/tmp')") == str(mine)


@needs_bwrap
async def test_it_is_nobody_without_rights_among_its_own_processes() -> None:
    async with opened("bwrap") as tool:
        assert int(await said(tool, "import os\nos.getuid()")) not in (0, os.getuid())
        code = "[l for l in open('/proc/self/status') if l.startswith(('CapEff', 'NoNewPrivs'))]"
        assert await said(tool, code) == "['CapEff:\\t0000000000000000\\n', 'NoNewPrivs:\\t1\\n']"
        code = "import os\nsorted(int(p) for p in os.listdir('/proc') if p.isdigit())[-1] < 10"
        assert await said(tool, code) == "True"


@needs_bwrap
async def test_it_works_in_a_user_namespace_too_as_for_who_is_not_root() -> None:
    box = await sandbox(root=False)
    code = "import os\nfor place in ('/x', '/etc/x', '/dev/x', '/proc/x'):\n"
    code += (
        "    try: open(place, 'w')\n    except OSError: pass\n    else: print(place)\nos.getuid()"
    )
    assert await execute(box.start(), code, limit_s=20, memory_mb=512) == "65534"
    assert "--disable-userns" in box.command()
    assert "--disable-userns" not in replace(box, version=(0, 7, 0)).command()


@needs_bwrap
@pytest.mark.parametrize(
    "leak", [("--unshare-net", "--unshare-ipc"), ("--unshare-pid", "--unshare-ipc")]
)
async def test_a_sandbox_that_reaches_the_network_is_not_used(leak: tuple[str, str]) -> None:
    box = await sandbox(root=True)

    async def run(code: str, limit_s: float) -> str:
        start = box.start()
        command = [leak[1] if arg == leak[0] else arg for arg in start.command]
        return await execute(replace(start, command=command), code, limit_s=limit_s, memory_mb=512)

    if leak[0] != "--unshare-net":
        assert await try_backend("bwrap", run, closed=True)
        return
    with pytest.raises(ConfigError, match=r"its code can reach the network \(127\.0\.0\.1\)"):
        await try_backend("bwrap", run, closed=True)


@pytest.mark.parametrize("symlinks", [True, False])
def test_a_virtual_environment_s_folders_are_found_without_running_it(
    symlinks: bool, tmp_path: Path
) -> None:
    EnvBuilder(symlinks=symlinks).create(tmp_path / "venv")
    found = installed("./venv/bin/python", tmp_path)
    command = [found.path, "-I", "-c", "import os, sys; print(sys.prefix, os.__file__, sep='\\n')"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    prefix, library = map(Path, told.split("\n")[:2])
    assert prefix in found.prefixes
    assert any(library.is_relative_to(place) for place in found.prefixes)
    assert not any(Path.home().is_relative_to(place) for place in found.prefixes)


@needs_bwrap
async def test_too_little_memory_for_python_itself_is_said_when_it_opens() -> None:
    error = await refusal("bwrap", memory_mb=16)
    assert "the backend bwrap does not work here" in str(error)
    said = ("MemoryError", "killed", "failed to map segment")
    assert any(word in str(error) for word in said)


def test_the_interpreter_s_links_are_seen_to_where_they_lead(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "python3").touch()
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "python").symlink_to("../alias/bin/python3")
    (tmp_path / "alias").symlink_to("real")
    python = Interpreter(str(tmp_path / "links" / "python"), (tmp_path / "alias",))
    assert list(python.mounts(["/usr"])) == [
        (real, tmp_path / "alias"),
        (real, real),
        (real / "bin" / "python3", tmp_path / "links" / "python"),
    ]


@needs_bwrap
@pytest.mark.parametrize("root", [True, False])
async def test_a_project_in_a_folder_that_is_seen_is_shown_empty(
    root: bool, tmp_path: Path
) -> None:
    if root and os.geteuid() != 0:
        pytest.skip("only root can do without a user namespace")
    venv, work = tmp_path / "venv", tmp_path / "venv" / "work"
    for folder in (venv, work / ".venv"):
        EnvBuilder(symlinks=True).create(folder)
    (work / ".env").write_text("KEY=secret")
    found = installed(str(work / ".venv" / "bin" / "python"), Path())
    python = replace(found, prefixes=(venv, *found.prefixes))
    box = replace(await sandbox(root=root), python=python)
    code = f"import os, sys\nsorted(os.listdir({str(work)!r})), sys.prefix"
    seen = await execute(box.start(), code, limit_s=20, memory_mb=512)
    assert seen == str(([".env", ".venv"], str(work / ".venv")))
    box = replace(box, private=(work,))
    seen = await execute(box.start(), code, limit_s=20, memory_mb=512)
    assert seen == str(([".venv"], str(work / ".venv")))
    code = f"open({str(work / 'x')!r}, 'w')"
    refused = await execute(box.start(), code, limit_s=20, memory_mb=512)
    assert "Permission denied" in refused or "Read-only" in refused


async def test_a_private_folder_is_hidden_under_each_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    python = Interpreter("/usr/bin/python3", (tmp_path / "alias",))
    private = (tmp_path / "real" / "work", Path("/usr/src/app"), tmp_path)
    command = Sandbox("bwrap", python, (0, 8, 0), root=True, private=private).command()
    hidden = [command[i + 1] for i, arg in enumerate(command) if arg == "--tmpfs"][2:]
    assert sorted(hidden) == [
        str(tmp_path / "alias" / "work"),
        str(tmp_path / "real" / "work"),
        "/usr/src/app",
    ]


def test_what_runs_inside_needs_nothing_of_this_package() -> None:
    assert "grpo_practice" not in cpython.program()


@needs_bwrap
async def test_an_interpreter_in_tmp_is_seen_there_and_nothing_else() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        venv.create(Path(folder) / "venv", symlinks=True)
        (Path(folder) / "mine").touch()
        async with opened("bwrap", python=f"{folder}/venv/bin/python") as tool:
            code = "import sys, os\nprint(sys.prefix, os.listdir(os.path.dirname(sys.prefix)))"
            assert await said(tool, code) == f"{folder}/venv ['venv']"
            write = "open(sys.prefix + '/x', 'w')"
            assert "Read-only file system" in await said(tool, f"import sys\n{write}")
            assert await said(tool, "open('/tmp/x', 'w').write('1')") == "1"
