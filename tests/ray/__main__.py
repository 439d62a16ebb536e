"""Runs the tests of Ray where it can reach nobody: `python -m tests.ray [ARGUMENT OF PYTEST …]`.

`python -m tests.ray -- -m bench own_agents` runs something else with its Python, in the same place.

Ray listens on every address of its machine, whatever it is told. So all of it runs in a network
namespace made here, in which there is no way out: a pair of interfaces leads to a second one, the
other machine. Needs Linux, `ip`, `unshare` and `nsenter`; without namespaces it says so and fails.
"""

# ruff: noqa: T201

import os
import secrets
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ENVIRONMENT = Path(".programs/ray")
TESTS = ("pytest>=9.0", "hypothesis>=6.140", "anyio>=4", "trustme>=1.2", "openai>=2.0")
DRIVER, OTHER = "10.77.0.1", "10.77.0.2"
"""Addresses of the two namespaces, which nothing else has."""
SPACE = f"""
set -e
ip link set lo up
unshare --net sleep infinity & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link add here type veth peer name there
ip link set there netns $other
ip addr add {DRIVER}/24 dev here && ip link set here up && ip route add default via {OTHER}
nsenter -n -t $other sh -ec 'ip link set lo up; ip addr add {OTHER}/24 dev there
  ip link set there up; ip route add default via {DRIVER}'
RAY_SPACE=$other "$@"
"""


def install() -> Path:
    """Make the environment, once; return its Python."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    wanted = (*project["optional-dependencies"]["ray"], *project["dependencies"], *TESTS)
    made, python = ENVIRONMENT / "requires.txt", ENVIRONMENT / "bin/python"
    if not made.is_file() or made.read_text("utf-8") != "\n".join(wanted):
        print(f"installing Ray into {ENVIRONMENT}, once: half a minute, and half a gigabyte")
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        subprocess.run([*pip, *wanted], check=True)
        made.write_text("\n".join(wanted), "utf-8")
    return python


def main() -> int:
    """Make both namespaces, and run pytest in the first, or what is asked for."""
    python = install()
    separate = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    tools = all(shutil.which(name) for name in ("unshare", "nsenter", "ip"))
    if not tools or subprocess.run([*separate, "true"], check=False).returncode:
        print("no network namespaces can be had here: Ray is left out, with one node and with two")
        return 1
    here = Path.cwd()
    env = os.environ | {
        "PYTHONPATH": f"{here / 'src'}{os.pathsep}{here}",
        # Read as Ray is imported; of this run's cluster alone.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    given = sys.argv[1:]
    tests = ["-m", "pytest", "-q", "-o", "filterwarnings=default", "tests/ray", *given]
    words = [str(python.absolute()), *(given[1:] if given[:1] == ["--"] else tests)]
    return subprocess.run(
        [*separate, "bash", "-c", SPACE, "space", *words], env=env, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
