"""Makes the database of this version that later versions are tested with.

Before a schema changes: python -m tests.store.make_fixture
"""

import asyncio
import gzip
import tempfile
from contextlib import closing
from pathlib import Path

from grpo_practice.store import db
from tests.app.project import Project

SCHEMAS = Path(__file__).parent / "schemas"


async def make(folder: Path) -> str:
    """Return the line that `RESULTS` of test_migrations.py needs; the file is in `folder`."""
    with tempfile.TemporaryDirectory() as place:
        project = Project(Path(place) / "p")
        await project.practise("practice.do_eval=true")
        await project.evaluate()
        with closing(db.connect(project.db)) as it:
            it.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        name = f"v{db.VERSION}"
        (folder / f"{name}.db.gz").write_bytes(gzip.compress(project.db.read_bytes(), mtime=0))
        return f'"{name}": "{project.results()}"'


if __name__ == "__main__":
    print(asyncio.run(make(SCHEMAS)))  # noqa: T201
