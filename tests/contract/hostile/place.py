"""A stranger's folder in the home of somebody with secrets, and commands typed in it."""

import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_practice import Workspace
from tests.contract.command import run
from tests.contract.hostile import planted
from tests.contract.hostile.planted import FILES, ROWS, VARIABLES
from tests.contract.hostile.recorder import Recorder, names_looked_up
from tests.surroundings import surroundings

OWN = """
exp_id: own
data: {dataset: mine.jsonl}
verify: exact
agent: {agent: {name: mine, instructions: Answer.}}
"""
"""A config of the user's own, which takes model, URL and key from the environment."""

SERVED_ASK = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


@dataclass
class Outcome:
    """What became of a command: what left, what ran, what was printed."""

    words: tuple[str, ...]
    code: int
    left: list[str]
    """Names of secrets that a stranger received, or that went where they do not belong."""
    ran: list[str]
    """Planted programs that ran."""
    shown: str
    before: str
    """What had been printed when the first request came; all of it where none came."""
    asked: int
    """Requests that the stranger's origin received."""
    kept: list[str]
    """Secrets that stand in files which the command wrote."""
    origin: str
    """The stranger's origin."""
    named: Mapping[str, list[str]]
    """`file:line` of each place in the folder that names a variable."""

    def announces(self, variable: str, text: str) -> bool:
        """Return whether a line says where the variable goes, and which file and line names it."""
        host = self.origin.partition("//")[2]
        return any(
            variable in line
            and host in line
            and any(place in line for place in self.named[variable])
            for line in text.splitlines()
        )


@dataclass
class Place:
    """The home, the stranger's folder in it, and the two origins."""

    root: Path
    good: Recorder
    evil: Recorder
    env: dict[str, str] = field(default_factory=dict)
    given: dict[Path, bytes] = field(default_factory=dict)
    apart: bool = False
    """Whether commands run in processes of their own."""

    def __post_init__(self) -> None:
        self.good.reset()
        self.evil.reset()
        self.home, self.mark = self.root / "home", self.root / "ran"
        self.folder, self.own = self.home / "work" / "cloned", self.home / "own"
        for folder in (self.folder, self.own, self.root / "bin", self.root / "tmp"):
            folder.mkdir(parents=True)
        for name, (secret, text) in FILES.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(secret))
        for name in ("bwrap", "docker"):
            self.program(self.root / "bin" / name, f"{name} $1")
        self.put("mine.jsonl", ROWS)
        self.put("own.yaml", OWN)
        self.evil.code = planted.python(self.mark, "code of the stranger's model")
        self.env = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.root / "tmp"),
            "NO_COLOR": "1",
            "COLUMNS": "400",
            "UTU_LLM_MODEL": "m",
            "UTU_LLM_BASE_URL": f"{self.good.origin}/v1",
            **VARIABLES,
        }

    def fill(self, text: str) -> str:
        """Put the origins and paths into a text."""
        values = {
            "@EVIL@": self.evil.origin,
            "@GOOD@": self.good.origin,
            "@MARK@": str(self.mark),
            "@HOME@": str(self.home),
            "@FOLDER@": str(self.folder),
            "@EVILPORT@": str(self.evil.port),
        }
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    def put(self, name: str, text: str, *, runs: bool = False) -> Path:
        """Write a file of the stranger's folder; the name may lead out of it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.fill(text))
        if runs:
            path.chmod(0o755)
        return path

    def link(self, name: str, to: str) -> None:
        """Make a symbolic link in the stranger's folder to a file of the home."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.home / to)

    def program(self, path: Path, what: str) -> None:
        """Write a program that leaves its mark."""
        path.write_text(planted.shell(self.mark, what))
        path.chmod(0o755)

    def module(self, name: str, rest: str = "", what: str = "") -> Path:
        """Write a Python file that leaves its mark when it is imported."""
        return self.put(name, f"{planted.python(self.mark, what or name)}\n{rest}")

    def type(self, *words: str) -> Outcome:
        """Run a command as a person would, in the stranger's folder."""
        for recorder in (self.good, self.evil):
            recorder.received.clear()
        self.mark.unlink(missing_ok=True)
        self.given = {p: p.read_bytes() for p in self.home.rglob("*") if p.is_file()}
        out = self.root / "printed"
        first = list[str]()

        def seen() -> None:
            if not first:
                first.append(out.read_text("utf-8", "replace"))

        self.good.seen = self.evil.seen = seen
        with self._surroundings(), names_looked_up() as looked, _printed(out), _asked_when_served():
            code = (self._process if self.apart else run)(*words)
        shown = out.read_text("utf-8", "replace")
        left = planted.secrets_in(self.evil.whole + "\n".join(looked).encode())
        # The user's endpoint gets its own key, and no other secret.
        theirs = self.good.whole.replace(planted.KEY.encode(), b"")
        left += [f"{name} (to the user's endpoint)" for name in planted.secrets_in(theirs)]
        ran = self.mark.read_text().splitlines() if self.mark.exists() else []
        asked = sum(part.startswith((b"POST", b"GET")) for part in self.evil.received)
        kept = planted.secrets_kept(self.home, self.given)
        before = first[0] if first else shown
        named = {name: list(self._named(name)) for name in VARIABLES}
        return Outcome(words, code, left, ran, shown, before, asked, kept, self.evil.origin, named)

    def _process(self, *words: str) -> int:
        script = Path(sys.executable).with_name("grpo-practice")
        return subprocess.run([script, *words], stdin=subprocess.DEVNULL, check=False).returncode

    def _named(self, variable: str) -> Iterator[str]:
        """Yield `file:line` of each place in the folder that names the variable."""
        for path in self.folder.rglob("*.yaml"):
            if path.is_symlink() or not path.is_file():
                continue
            for n, line in enumerate(path.read_text().splitlines(), 1):
                if "oc.env" in line and variable in line:
                    yield f"{path.name}:{n}"

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        path, modules, stdin = list(sys.path), set(sys.modules), sys.stdin
        try:
            with surroundings(self.folder, self.env), Path(os.devnull).open() as sys.stdin:
                yield  # nobody answers a question
        finally:
            sys.stdin, sys.path[:] = stdin, path
            # A module of this folder must not stand for one of the same name in the next.
            for name in set(sys.modules) - modules:
                at = getattr(sys.modules[name], "__file__", None) or ""
                if at.startswith(str(self.root)):
                    del sys.modules[name]


@contextmanager
def _printed(path: Path) -> Iterator[None]:
    """Write everything that goes to the descriptors 1 and 2 into a file, at once."""
    streams, saved = (sys.stdout, sys.stderr), [os.dup(1), os.dup(2)]
    for stream in streams:
        stream.flush()
    path.write_text("")
    with path.open("a", buffering=1) as out, path.open("a", buffering=1) as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = out, err
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            for number, copy in enumerate(saved, 1):
                os.dup2(copy, number)
                os.close(copy)


@contextmanager
def _asked_when_served() -> Iterator[None]:
    """Have `serve` asked once when it is ready, and then stopped as Ctrl-C does."""
    real = getattr(Workspace, "serve", None)
    if real is None:  # without that slice
        yield
        return

    def serve(self: Workspace, agent: Any, *, on_ready: Any, **options: Any) -> None:
        def ready(now: Any) -> None:
            on_ready(now)
            threading.Thread(target=_ask, args=(now.url,)).start()

        real(self, agent, on_ready=ready, **options)

    setattr(Workspace, "serve", serve)  # noqa: B010
    try:
        yield
    finally:
        setattr(Workspace, "serve", real)  # noqa: B010


def _ask(url: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(
        f"{url}/chat/completions", SERVED_ASK, {"Content-Type": "application/json"}
    )
    with suppress(OSError):
        direct.open(asked).read()
    os.kill(os.getpid(), signal.SIGINT)
