"""Settings every test shares.

How hard the properties are tried: `HYPOTHESIS_PROFILE=thorough` tries 240 times as many.
Quick, each run tries the same examples, so what fails has changed; thorough, ever new ones.
"""

import gc
import os
import pickle
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from hypothesis import HealthCheck, settings
from typing_extensions import override

from grpo_practice.cli.options import forget_database
from grpo_practice.config.reading import yaml_reader
from grpo_practice.config.reading.yaml_reader import Position
from grpo_practice.core import processes
from grpo_practice.core.redact import redactor
from grpo_practice.core.user_code import UserFunction
from grpo_practice.store import db as database
from grpo_practice.store import typed_rows
from grpo_practice.verify.verifier import Verifier

# A shell that starts a job in the background, and `nohup`, hand down a SIGINT that is ignored: what
# a test interrupts would then go on for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Before numpy is imported, here or by a command: its threads, one a core, only wait for work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile(
    "quick",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("quick"), max_examples=6_000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(optionalhook=True)  # tests of a program of its own run without xdist
def pytest_xdist_auto_num_workers() -> int:
    """Start one more than there are cores: many a test waits for a deadline.

    Each takes a dozen seconds of work to collect the tests and to start its fork servers.
    """
    return processes.cores() + 1


def pytest_configure() -> None:
    """Keep the tests' folders in memory, where it has room: ext4 takes a tenth of their time."""
    with suppress(OSError, AttributeError):  # of systems that have no such place
        free = os.statvfs(MEMORY)
        if free.f_bavail * free.f_frsize > ROOM and os.access(MEMORY, os.W_OK | os.X_OK):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


MEMORY = "/dev/shm"
ROOM = 4 << 30
"""Bytes; the tests need an eighth of it, and leave nothing there unless one fails."""


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a test `long` that come after as many as its `long_after` says."""
    cases = Counter[str]()
    for item in items:
        if mark := item.get_closest_marker("long_after"):
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > mark.args[0]:
                item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Leave what is imported and collected out of every later collection of garbage: it stays."""
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_of_another_test(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Let no test see another's secrets, `--db` or trust; one fixture, since each takes its time.

    Workers start when they are needed: few tests come to need one, which takes a second of work.
    """
    redactor.forget()
    forget_database()
    monkeypatch.delenv("COLUMNS", raising=False)  # parallel workers say 80
    folder = tmp_path_factory.getbasetemp() / "users" / str(next(_USERS))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))  # not a person's home
    monkeypatch.delenv("GRPO_PRACTICE_TRUST_HOSTS", raising=False)
    if request.node.get_closest_marker("workers_first") is None:
        monkeypatch.setattr(Verifier, "start", _later)


_USERS = count()


async def _later(self: Verifier) -> None:
    """Leave it to the first answer that needs a worker."""


@pytest.fixture(scope="session", autouse=True)
def workers_of_programs_start_when_they_are_needed() -> Iterator[None]:
    """Where a test starts the program, too; the installed script starts them as for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.processes.FIRST", LATER)
        yield


LATER = """
from grpo_practice.verify.verifier import Verifier
async def later(self): pass
Verifier.start = later
"""


@pytest.fixture(scope="session", autouse=True)
def no_power_fails() -> Iterator[None]:
    """Commits of this process do not wait for the disk, which is a quarter of the tests' time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_practice.store.db.SYNCHRONOUS", "OFF")
        yield


@pytest.fixture(scope="session", autouse=True)
def a_new_database_is_made_once(
    no_power_fails: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Every new database of this process is a copy of the first one."""
    first = tmp_path_factory.mktemp("first") / "p.db"
    database.prepare(first)
    made = database.connect(first)

    def copy(db: sqlite3.Connection, path: Path) -> None:
        if database.check_ours(db, path) == 0:
            made.backup(db)
            db.execute("PRAGMA journal_mode = WAL")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_migrate", copy)
        yield
    made.close()


@pytest.fixture(scope="session", autouse=True)
def workers_of_any_kind_are_preloaded() -> Iterator[None]:
    """The first pool of a process decides what all workers have; the others import it each time."""

    class ForkServer(processes._ForkServer):
        @override
        def set_forkserver_preload(self, modules_names: list[str]) -> None:
            super().set_forkserver_preload(sorted({*modules_names, *WORKERS}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes._server, "__class__", ForkServer)
        yield


WORKERS = (
    "grpo_practice.rollout.tools.mcp.result_check",
    "grpo_practice.rollout.tools.search.markup",
    "grpo_practice.verify.warmup",
    "grpo_practice.verify.worker",
)
"""Modules that a worker imports, where it was not copied from a process that has them."""


@pytest.fixture(scope="session", autouse=True)
def equal_files_of_users_are_tried_once() -> Iterator[None]:
    """A process of its own tries to load each verify function first, which takes 60 ms."""
    rehearse, fine = UserFunction.rehearse, set[tuple[str, str]]()

    def first(function: UserFunction) -> str | None:
        if (function.func, function.text) in fine:
            return None
        if (why := rehearse(function)) is None:
            fine.add((function.func, function.text))
        return why

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UserFunction, "rehearse", first)
        yield


@pytest.fixture(scope="session", autouse=True)
def the_commands_are_read_once() -> Iterator[None]:
    """Typer reads every command's parameters anew for each that is typed."""
    with pytest.MonkeyPatch.context() as patch:
        read = cache(typer.main.get_command)
        patch.setattr("typer.main.get_command", read)
        patch.setattr("typer.testing._get_command", read)
        yield


@pytest.fixture(scope="session", autouse=True)
def equal_yaml_is_parsed_once() -> Iterator[None]:
    """Hundreds of commands read the shipped configs, and PyYAML takes 20 ms for one."""
    parse = yaml_reader.parse_document
    parsed = dict[str, bytes]()

    def first(text: str, name: str) -> tuple[Any, dict[yaml_reader.Key, Position]]:
        if text not in parsed:
            parsed[text] = pickle.dumps(parse(text, name))
        value, places = pickle.loads(parsed[text])
        return value, {key: replace(place, file=name) for key, place in places.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_reader, "parse_document", first)
        yield


@pytest.fixture(scope="session", autouse=True)
def columns_of_equal_schemas_are_read_once() -> Iterator[None]:
    """Each connection reads which columns its file has, and most files of tests have the same."""
    read, known = typed_rows.our_columns, dict[str, list[tuple[str, str, str, int]]]()
    whole = "SELECT coalesce(group_concat(name || sql, char(10)), '') FROM sqlite_schema"

    def first(db: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
        (schema,) = sqlite3.Connection.execute(db, whole).fetchone()
        if schema not in known:
            known[schema] = read(db)
        return known[schema]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed_rows, "our_columns", first)
        yield


@pytest.fixture(scope="session", autouse=True)
def the_certificates_of_programs_are_read_once() -> Iterator[None]:
    """Each OpenAI client of a program under test reads them, for 30 ms, and asks this machine."""
    with pytest.MonkeyPatch.context() as patch:
        with suppress(ImportError):  # what the client of today is made on
            read = cache(import_module("httpcore2").default_ssl_context)
            patch.setattr("httpcore2.default_ssl_context", read)
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give verify functions a minute for an answer, since whole runs rest on no clock."""
    monkeypatch.setattr("grpo_practice.verify.resolve.TIMEOUT_S", 60.0)


_FOLDERS = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the test's own; pytest's lists all earlier ones to find a free name."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}{next(_FOLDERS)}"
    folder.mkdir(mode=0o700)
    return folder
