"""The reference's memory server, whose state is a file beside its own code."""

import subprocess
from pathlib import Path

from tests.programs.mcp_server import Case, ask

REQUIRES: tuple[str, ...] = ()

CASE = Case(
    (),
    (
        (
            "create_entities",
            {"entities": [{"name": "Pear", "entityType": "fruit", "observations": []}]},
        ),
    ),
    "Pear",  # an entity that is there already is not in the answer
    {"MEMORY_FILE_PATH": "{workdir}/memory.jsonl"},
    own_folder=True,
)


def check(python: Path, folder: Path) -> str:
    """Let an agent write and read in each rollout, which begins with nothing."""
    package = "@modelcontextprotocol/server-memory"
    install = ["npm", "install", "--silent", "--prefix", str(folder), package]
    subprocess.run(install, check=True)
    return ask(folder / "node_modules/.bin/mcp-server-memory", folder, CASE)
