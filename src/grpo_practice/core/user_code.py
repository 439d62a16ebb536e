"""The user's verify functions: `path.py:func`, loaded from the text of the file and called.

The interface is the same as in the method's reference implementation: `verify_func(sample,
timeout_score=0, **kwargs) -> {"reward": float, "reasoning": str | None}`.
"""

import builtins
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from grpo_practice.core.played import EvaluationSample
from grpo_practice.core.safe_path import safe_environment, safe_path

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

LOAD_S = 60.0
"""Maximum number of seconds for loading a file."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function in a file, with the text that was read."""

    path: Path
    func: str
    text: str

    @property
    def where(self) -> str:
        """Location `path.py:func`, for messages."""
        return f"{self.path}:{self.func}"

    def load(self) -> Callable[..., Any]:
        """Run the file and return the function. Exceptions raised by the file are not caught.

        Raises:
            AttributeError: The file does not define the name.
            TypeError: The name is not callable.
        """
        key = hashlib.sha256(f"{self.path}\0{self.text}".encode()).hexdigest()[:16]
        module = ModuleType(f"grpo_practice_verify_{key}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # dataclasses and pickle look it up there
        _SIBLINGS.serve(module, self.path.parent)
        with _reference_shims(), redirect_stdout(sys.stderr):
            exec(compile(self.text, str(self.path), "exec"), module.__dict__)
        if not hasattr(module, self.func):
            raise AttributeError(f"{self.path.name} does not define {self.func}")
        function = getattr(module, self.func)
        if not callable(function):
            raise TypeError(f"{self.func} is {type(function).__name__}, not a function")
        return function  # type: ignore[no-any-return]

    def rehearse(self) -> str | None:
        """Return why the file cannot be loaded on this machine; test it in a separate process.

        None is also returned for a file that raises: the actual load reports that.
        """
        told = json.dumps([safe_path(), str(self.path), self.func, self.text]).encode()
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "grpo_practice.core.user_code"],
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


_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = (_PACKAGE, _PACKAGE.parents[1] / "configs")


def folders_of(base_dir: Path) -> list[Path]:
    """Return the folders that are searched for files named by a config, in order.

    The first is the folder of the config. If the config is below the current folder or is shipped,
    the current folder follows; otherwise that folder may belong to somebody else.
    """
    here, base = Path.cwd(), base_dir.resolve()
    beside = any(base.is_relative_to(folder) for folder in (here, *_SHIPPED))
    return list(dict.fromkeys([base_dir, here])) if beside else [base_dir]


def find_file(name: str, base_dir: Path) -> Path | None:
    """Return the file of that name in the first of the config's folders that has it, or None."""
    places = (folder / Path(name).expanduser() for folder in folders_of(base_dir))
    return next((place.resolve() for place in places if place.is_file()), None)


def looked_in(base_dir: Path) -> str:
    """Return a hint that names the folders that were searched."""
    return f"looked in {' and '.join(map(str, folders_of(base_dir)))}"


class _Siblings:
    """Finds modules next to a user's file, for imports of that file and of the modules it imports.

    Other importers do not find them: a `random.py` next to a verify file must not replace the
    random number generator, nor `gmpy2.py` the package that sympy looks for. Each folder has its
    own modules: `sys.modules` has one entry per name, which is the module of the folder that is
    importing.
    """

    def __init__(self) -> None:
        self._folders = dict[str, Path]()
        """Folder of each top-level module that was found next to a file and is in `sys.modules`."""
        self._away = dict[tuple[Path, str], ModuleType]()
        """Modules moved out of `sys.modules` because another folder's modules have their names."""
        # Reentrant: importing a module imports others.
        self._lock = threading.RLock()

    def serve(self, module: ModuleType, folder: Path) -> None:
        """Let a module import from a folder, unless the name is built in or installed."""
        vars(module)[_FOLDER] = folder
        # The module behind a name differs by folder, which Python's own import cannot know.
        importing = {"__import__": partial(self._import, folder)}
        vars(module)["__builtins__"] = vars(builtins) | importing
        if self not in sys.meta_path:
            # First: submodules are searched by their package's path, so any finder would find them.
            sys.meta_path.insert(0, self)

    def _import(
        self,
        folder: Path,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        top = ((globals or {}).get("__package__") or name if level else name).partition(".")[0]
        if top in sys.modules and top not in self._folders:
            return builtins.__import__(name, globals, locals, fromlist, level)
        # Locked during the import: a thread of another folder could exchange the modules.
        with self._lock:
            if self._folders.get(top, folder) != folder:
                self._exchange(top, folder)
            return builtins.__import__(name, globals, locals, fromlist, level)

    def _exchange(self, top: str, folder: Path) -> None:
        """Replace another folder's modules of this name in `sys.modules` with this folder's."""
        other = self._folders.pop(top)
        for name in [name for name in sys.modules if name.partition(".")[0] == top]:
            self._away[other, name] = sys.modules.pop(name)
        for key in [(at, name) for at, name in self._away if at == folder]:
            if key[1].partition(".")[0] == top:
                sys.modules[key[1]] = self._away.pop(key)
                self._folders[top] = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of that module in the importing module's folder, or None."""
        top = fullname.partition(".")[0]
        folder = _importing_folder() if path is None else self._folders.get(top)
        if folder is None:
            return None
        if path is None:
            # Built-in and installed modules take precedence.
            for finder in sys.meta_path:
                if finder is not self and (spec := finder.find_spec(fullname, None, target)):
                    return spec
        spec = PathFinder.find_spec(fullname, [str(folder)] if path is None else path)
        if spec is not None:
            self._folders[top] = folder
            if isinstance(spec.loader, SourceFileLoader):
                spec.loader = _SiblingLoader(spec.loader.name, spec.loader.path, folder)
        return spec


class _SiblingLoader(SourceFileLoader):
    """Loads a module that can also import the modules next to the user's file."""

    def __init__(self, name: str, path: str, folder: Path) -> None:
        super().__init__(name, path)
        self._folder = folder

    @override
    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        _SIBLINGS.serve(module, self._folder)
        super().exec_module(module)


_SIBLINGS = _Siblings()
_FOLDER = "__grpo_practice_folder__"
"""Name of the global variable that holds a module's folder."""


def _importing_folder() -> Path | None:
    """Return the folder of the module that is currently importing, or None."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        importing = str(frame.f_globals.get("__name__")).partition(".")[0] != "importlib"
        if importing and frame.f_globals is not globals():
            return frame.f_globals.get(_FOLDER)
        frame = frame.f_back
    return None


@contextmanager
def _reference_shims() -> Iterator[None]:
    """Make `utu.db` importable inside the block, if it is not installed.

    Files written for the reference implementation import the type of their samples from it.
    """
    shims: dict[str, ModuleType] = {}
    if "utu" not in sys.modules and importlib.util.find_spec("utu") is None:
        shims = {name: ModuleType(name) for name in ("utu", "utu.db")}
        # Only a package can contain `utu.db`.
        shims["utu"].__path__ = []
        shims["utu.db"].EvaluationSample = EvaluationSample  # type: ignore[attr-defined]
    sys.modules.update(shims)
    try:
        yield
    finally:
        for name in shims:
            sys.modules.pop(name, None)


def accepts(function: Callable[..., Any], params: Mapping[str, Any]) -> str | None:
    """Return why the function cannot be called with these parameters; None if it can."""
    try:
        inspect.signature(function).bind(EvaluationSample(), **params)
    except TypeError as e:
        return str(e)
    except ValueError:  # a builtin without a signature
        return None
    return None


def line_of(error: BaseException, file: str | None) -> int | None:
    """Return the last line of a file in the error's traceback; None if the file is not in it."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for an `async def` function, and for an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - tests the kind, not whether it exists
    )


Outcome = tuple[T | None, BaseException | None]
"""Result of a call, or the exception that it raised."""


def start_thread(call: Callable[[], T]) -> "asyncio.Future[Outcome[T]]":
    """Make a blocking call on a new thread, and pass its outcome to the returned future."""
    import asyncio  # imported late: a rehearsal does not need it, and would take a third longer

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
        with suppress(RuntimeError):  # the loop is closed, so nobody is waiting
            loop.call_soon_threadsafe(settle, outcome)

    # A daemon thread: the program's exit would wait for a thread of asyncio.to_thread.
    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), daemon=True).start()
    return done


async def in_thread(call: Callable[[], T]) -> T:
    """Return the result of a blocking call made on a new thread.

    Cancelling ends the wait, not the call: a thread cannot be stopped.
    """
    result, error = await start_thread(call)
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # a call without an error has a result


def _rehearse_stdin() -> None:
    """Load the function described on stdin; report on stdout that this process survived."""
    report = os.dup(1)
    # Output of the file must not be mistaken for the report.
    os.dup2(2, 1)
    sys.path, path, func, text = json.loads(sys.stdin.buffer.read())
    with suppress(BaseException):  # load() raises it again when the file is really loaded
        UserFunction(Path(path), func, text).load()
    os.write(report, b"alive")
    # No normal exit: threads that the file started could keep this process alive.
    os._exit(0)


if __name__ == "__main__":
    _rehearse_stdin()


class SharedChange:
    """A change to the whole process that several runs may need at the same time.

    Overlapping runs need not end in the reverse order of their start: if each run restored the
    state it found, it could permanently bring back a value that another run had set.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        self._change, self._users, self._guard = change, 0, threading.Lock()
        self._made = ExitStack()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Apply the change while the block runs; of overlapping blocks, the last one reverts it."""
        with self._guard:
            if not self._users:
                self._made.enter_context(self._change())
            self._users += 1
        try:
            yield
        finally:
            with self._guard:
                self._users -= 1
                if not self._users:
                    self._made.close()


# stdout is reserved for the command's result: one print() would break its JSON.
STDOUT_TO_STDERR = SharedChange(lambda: redirect_stdout(sys.stderr))
"""Redirection of the output of the user's functions to stderr."""
