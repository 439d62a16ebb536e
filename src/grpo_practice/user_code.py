"""Verify functions of the user's own: `path.py:func`, loaded from their text and called.

The contract is that of the method's reference implementation:
`verify_func(sample, timeout_score=0, **kwargs) -> {"reward": float, "reasoning": str | None}`.
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
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from typing_extensions import override

from grpo_practice.safe_path import safe_environment, safe_path
from grpo_practice.text import nearest

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

LOAD_S = 60.0
"""Seconds a file may take to load."""


@dataclass
class EvaluationSample:
    """Sample as a verify function sees it.

    Fields that only the reference implementation fills are None; any other name raises.
    """

    raw_question: str = ""
    correct_answer: str | list[str] | None = None
    response: str = ""
    source: str = ""
    level: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    # The reference implementation's other fields, for functions that were written for it.
    id = exp_id = stage = created_at = updated_at = dataset = dataset_index = file_name = None
    augmented_question = extracted_final_answer = judged_response = reasoning = reward = None
    correct = confidence = time_cost = trace_id = trace_url = trajectory = trajectories = None

    @property
    def question(self) -> str:
        """The question, under its other name."""
        return self.raw_question

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError, with the nearest field: a misspelt one is no empty answer."""
        fields = [field for field in dir(self) if not field.startswith("_")]
        hint = nearest(name, fields, most=1) or "what a row has besides is in sample.meta"
        raise AttributeError(f"a sample has no field {name!r}; {hint}", name=name, obj=self)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field, or the default if it is None or missing, as the reference does."""
        value = getattr(self, name, None)
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
        _SIBLINGS.serve(module, self.path.parent)
        with _reference_shims(), redirect_stdout(sys.stderr):
            exec(compile(self.text, str(self.path), "exec"), module.__dict__)
        if not hasattr(module, self.func):
            raise AttributeError(f"there is no {self.func} in {self.path.name}")
        function = getattr(module, self.func)
        if not callable(function):
            raise TypeError(f"{self.func} is {type(function).__name__}, not a function")
        return function  # type: ignore[no-any-return]

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


_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = (_PACKAGE, _PACKAGE.parents[1] / "configs")


def folders_of(base_dir: Path) -> list[Path]:
    """Return the folders in which files that a config names are looked for, in order.

    They are the config's own and, for one that lies below the current folder or is shipped, the
    current folder: elsewhere that is not the config's, and may be a stranger's.
    """
    here, base = Path.cwd(), base_dir.resolve()
    beside = any(base.is_relative_to(folder) for folder in (here, *_SHIPPED))
    return list(dict.fromkeys([base_dir, here])) if beside else [base_dir]


def find_file(name: str, base_dir: Path) -> Path | None:
    """Return the file of that name in the first of the config's folders that has it, or None."""
    places = (folder / Path(name).expanduser() for folder in folders_of(base_dir))
    return next((place.resolve() for place in places if place.is_file()), None)


def looked_in(base_dir: Path) -> str:
    """Return a hint that names the folders in which a file was looked for."""
    return f"looked in {' and '.join(map(str, folders_of(base_dir)))}"


class _Siblings:
    """Finds modules beside a file of the user's, for imports of that file and of what it imports.

    Nobody else finds them there: a `random.py` beside a verify file is no random number generator,
    and no `gmpy2.py` beside it is what sympy looks for. Each folder has modules of its own:
    Python's table has one place for each name, and the importing folder's modules are put there.
    """

    def __init__(self) -> None:
        self._folders = dict[str, Path]()
        """Folder of the top-level modules that were found beside a file and are in the table."""
        self._away = dict[tuple[Path, str], ModuleType]()
        """Modules whose names another folder's have in the table."""
        # Reentrant: a module that is imported imports others.
        self._lock = threading.RLock()

    def serve(self, module: ModuleType, folder: Path) -> None:
        """Let a module import from a folder what is neither in the library nor installed."""
        vars(module)[_FOLDER] = folder
        # What a module of that name is differs by folder, which Python's own import cannot know.
        importing = {"__import__": partial(self._import, folder)}
        vars(module)["__builtins__"] = vars(builtins) | importing
        if self not in sys.meta_path:
            # First: what a package of the folder has inside is found by its path, and by any.
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
        # Until it is imported: a thread of another folder would put its own there meanwhile.
        with self._lock:
            if self._folders.get(top, folder) != folder:
                self._exchange(top, folder)
            return builtins.__import__(name, globals, locals, fromlist, level)

    def _exchange(self, top: str, folder: Path) -> None:
        """Put a folder's modules of a name in the place of another folder's."""
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
        """Return the module of that name beside the importing one; None if there is none."""
        top = fullname.partition(".")[0]
        folder = _importing_folder() if path is None else self._folders.get(top)
        if folder is None:
            return None
        if path is None:
            # The library and installed packages come first.
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
    """Loads a module that finds, in turn, what is beside the file of the user's."""

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
"""Name of the global by which a module is known to be served."""


def _importing_folder() -> Path | None:
    """Return the folder that the module whose import is under way is served from."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        importing = str(frame.f_globals.get("__name__")).partition(".")[0] != "importlib"
        if importing and frame.f_globals is not globals():
            return frame.f_globals.get(_FOLDER)
        frame = frame.f_back
    return None


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


def line_of(error: BaseException, file: str | None) -> int | None:
    """Return the line of a file that an error came through last; None where it did not."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for `async def`, and for an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its kind is asked, not its presence
    )


Outcome = tuple[T | None, BaseException | None]
"""Result of a call, or what it raised."""


def start_thread(call: Callable[[], T]) -> "asyncio.Future[Outcome[T]]":
    """Make a blocking call on a thread of its own, and let the future know how it ended."""
    import asyncio  # a third of the time that a rehearsal takes, which needs none of it

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


class SharedChange:
    """A change of the whole process that several runs may need at once.

    Runs that overlap do not end in the reverse order of their beginning: each of them restoring
    what it found would bring back what another one had set, for good.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        self._change, self._users, self._guard = change, 0, threading.Lock()
        self._made = ExitStack()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the change for the block, unless it is made; the last one to leave undoes it."""
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


# stdout is for what the command was asked for: one print() would break its JSON.
STDOUT_TO_STDERR = SharedChange(lambda: redirect_stdout(sys.stderr))
"""Detour of what a function of the user's prints."""
