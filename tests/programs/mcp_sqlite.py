"""The SQLite server, whose state is a file that it is told."""

from pathlib import Path

from tests.programs.mcp_server import Case, ask

REQUIRES = ("mcp-server-sqlite", "mcp<2")

CASE = Case(
    ("--db-path", "{workdir}/notes.db"),
    (
        ("create_table", {"query": "CREATE TABLE pears (kind TEXT)"}),
        ("write_query", {"query": "INSERT INTO pears VALUES ('Conference')"}),
        ("read_query", {"query": "SELECT count(*) AS n FROM pears"}),
    ),
    "'n': 1",
    own_folder=True,
)


def check(python: Path, folder: Path) -> str:
    """Let an agent write and read in each rollout, which begins with nothing."""
    return ask(python.parent / "mcp-server-sqlite", folder, CASE)
