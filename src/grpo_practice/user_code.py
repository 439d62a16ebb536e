"""Verify functions of the user's own: `path.py:func`, loaded from their text and called.

The contract is that of the method's reference implementation:
`verify_func(sample, timeout_score=0, **kwargs) -> {"reward": float, "reasoning": str | None}`.
"""

import ast
import asyncio
import contextvars
import hashlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

from typing_extensions import override

from grpo_practice.safe_path import safe_environment, safe_path

T = TypeVar("T")

LOAD_S = 60.0
"""Seconds a file may take to load."""


@dataclass
class EvaluationSample:
    """Sample as a verify function sees it; a field it does not have reads as None."""

    raw_question: str = ""
    correct_answer: str | list[str] | None = None
    response: str = ""
    source: str = ""
    level: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """The question, under its other name."""
        return self.raw_question

    def __getattr__(self, name: str) -> None:
        """Return None for a field that is not there; names of Python's protocols raise."""
        if name.startswith("__"):
            raise AttributeError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field, or the default when it is None."""
        value = getattr(self, name)
        return default if value is None else value


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function in a file, as it was read."""

    path: Path
    func: str
    text: str

    @property
    def where(self) -> str:
        """`path.py:func`, for messages."""
        return f"{self.path}:{self.func}"

    def load(self) -> Callable[..., Any]:
        """Run the file and take the function from it. Whatever the file raises passes through.

        Raises:
            AttributeError: The file has no such name.
            TypeError: The name is no function.
        """
        key = hashlib.sha256(f"{self.path}\0{self.text}".encode()).hexdigest()[:16]
        module = ModuleType(f"grpo_practice_verify_{key}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
        _SIBLINGS.serve(module.__name__, self.path.parent)
        with _reference_shims(), redirect_stdout(sys.stderr):
            exec(compile(self.text, str(self.path), "exec"), module.__dict__)
        if not hasattr(module, self.func):
            raise AttributeError(f"there is no {self.func} in {self.path.name}")
        function = getattr(module, self.func)
        if not callable(function):
            raise TypeError(f"{self.func} is {type(function).__name__}, not a function")
        return function  # type: ignore[no-any-return]

    def reads_async(self) -> bool:
        """Return whether the text defines the function with `async def`; nothing is run."""
        with suppress(SyntaxError, ValueError):
            body = ast.parse(self.text).body
            return any(isinstance(d, ast.AsyncFunctionDef) and d.name == self.func for d in body)
        return False

    def rehearse(self) -> str | None:
        """Return why the file cannot be loaded here, found by loading it in a process of its own.

        None also for a file that raises: that is said where it is loaded.
        """
        told = json.dumps([safe_path(), str(self.path), self.func, self.text]).encode()
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "grpo_practice.user_code"],
                env=safe_environment(),
                input=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=LOAD_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it takes longer than {LOAD_S:g} s"
        if done.stdout.endswith(b"alive"):
            return None
        return f"its process ended while it was loaded (exit code {done.returncode})"


def find_file(name: str, base_dir: Path) -> Path | None:
    """Return the file of that name beside the config, else in the current folder; None if none."""
    places = (base_dir / Path(name).expanduser(), Path.cwd() / name)
    return next((place.resolve() for place in places if place.is_file()), None)


class _Siblings(MetaPathFinder):
    """Finds modules beside a file of the user's, for imports of that file and of what it imports.

    Nobody else finds them there: a `random.py` beside a verify file is no random number generator,
    and no `gmpy2.py` beside it is what sympy looks for.
    """

    def __init__(self) -> None:
        self._folders = dict[str, Path]()
        """Folder by the name of the top-level module whose imports are served."""

    def serve(self, module: str, folder: Path) -> None:
        """Let a module import from a folder what is neither in the library nor installed."""
        self._folders[module] = folder
        if self not in sys.meta_path:
            sys.meta_path.append(self)  # last: the library and installed packages come first

    @override
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the module of that name beside the importing one; None if there is none."""
        folder = None if path is not None else self._folders.get(_importing_module())
        if folder is None:
            return None
        spec = PathFinder.find_spec(fullname, [str(folder)])
        if spec is not None:
            self._folders[fullname] = folder
        return spec


_SIBLINGS = _Siblings()


def _importing_module() -> str:
    """Return the top-level name of the module whose import is under way."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__")).partition(".")[0]
        if name != "importlib":
            return name
        frame = frame.f_back
    return ""


@contextmanager
def _reference_shims() -> Iterator[None]:
    """Make `utu.db` importable in the block, where it is absent.

    Files written for the reference implementation import their sample's type from there.
    """
    shims: dict[str, ModuleType] = {}
    if "utu" not in sys.modules and importlib.util.find_spec("utu") is None:
        shims = {name: ModuleType(name) for name in ("utu", "utu.db")}
        # Only a package can have `utu.db` in it.
        shims["utu"].__path__ = []
        shims["utu.db"].EvaluationSample = EvaluationSample  # type: ignore[attr-defined]
    sys.modules.update(shims)
    try:
        yield
    finally:
        for name in shims:
            sys.modules.pop(name, None)


def accepts(function: Callable[..., Any], params: Mapping[str, Any]) -> str | None:
    """Return why the function cannot be called with these parameters; None when it can."""
    try:
        inspect.signature(function).bind(EvaluationSample(), **params)
    except TypeError as e:
        return str(e)
    except ValueError:  # a builtin without a signature
        return None
    return None


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for `async def`, and for an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its kind is asked, not its presence
    )


Outcome = tuple[T | None, BaseException | None]
"""Result of a call, or what it raised."""


def start_thread(call: Callable[[], T]) -> "asyncio.Future[Outcome[T]]":
    """Make a blocking call on a thread of its own, and let the future know how it ended."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome[T]] = loop.create_future()

    def settle(outcome: Outcome[T]) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome: Outcome[T] = (call(), None)
        except BaseException as e:  # noqa: BLE001 - raised where the result is awaited
            outcome = (None, e)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    # A daemon, unlike the threads of asyncio.to_thread: the exit of the program waits for those.
    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), daemon=True).start()
    return done


async def in_thread(call: Callable[[], T]) -> T:
    """Return what a blocking call returns, made on a thread of its own.

    Cancelling stops the wait, not the call: a thread cannot be stopped.
    """
    result, error = await start_thread(call)
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # a call without an error has a result


def _rehearse_stdin() -> None:
    """Load the function described on stdin; report on stdout that this process outlived it."""
    report = os.dup(1)
    # What the file prints must not pass for the report.
    os.dup2(2, 1)
    sys.path, path, func, text = json.loads(sys.stdin.buffer.read())
    with suppress(BaseException):  # load() raises again where the file is loaded for good
        UserFunction(Path(path), func, text).load()
    os.write(report, b"alive")
    # Not by the usual exit: threads that the file started could keep this process alive.
    os._exit(0)


if __name__ == "__main__":
    _rehearse_stdin()
