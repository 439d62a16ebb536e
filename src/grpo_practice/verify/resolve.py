"""Resolves a name in the config, or a Python function, to a verify function."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from grpo_practice.config.schema.runs import REFERENCE_FILES
from grpo_practice.core import function_text, user_code
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import digest, text_sha
from grpo_practice.core.types import Gold, Sample
from grpo_practice.verify import judge
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.builtin import BUILT_INS, BuiltIn, Runs

TIMEOUT_S = 2.0
"""Default time limit for one answer, in seconds."""
IN_PROCESS_TIMEOUT_S = 3_600.0
"""Time limit in seconds for a function in this process, which may have to wait for a model."""

_FOLDERS = ("verify/", "utu/practice/verify/")
"""Project folders that contain verify files; the second is the reference implementation's."""


@dataclass(frozen=True, slots=True)
class VerifyFunction:
    """A built-in or a user's verify function with its parameters."""

    name: str
    """Configured name; if it is a file of the reference that is missing, the equivalent built-in's
    name.
    """
    kind: str
    """Name of the built-in, `custom` for a function in a file, or `function object`."""
    params: Mapping[str, Any]
    timeout_s: float | None = None
    """Time limit for one answer in seconds; None if only the judge's request limits apply."""
    timeout_score: float | None = None
    """Reward for an answer that ran out of time, if the user set one."""
    file: user_code.UserFunction | None = None
    """File that contains the user's function and that the workers load; None for all other
    functions.
    """
    source: str | None = field(default=None, repr=False)
    """Text of the user's file or function, or of the judge's template."""
    in_process: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    """The user's function itself if this process calls it: async, or passed as an object."""
    asks_judge: bool = False
    """True if the user's function takes `llm`, a client for the judge model."""
    rubric: judge.Rubric | None = field(default=None, compare=False, repr=False)
    """Prompt of the built-in judge."""
    note: str | None = field(default=None, compare=False)
    """Sentence for the user if a different function is used from the one named."""

    @property
    def is_judge(self) -> bool:
        """True if scoring may send requests to a model, which cost money."""
        return self.runs == "judge" or self.asks_judge

    @property
    def built_in(self) -> BuiltIn | None:
        """The built-in function; None for a user's function."""
        return BUILT_INS.get(self.kind)

    @property
    def runs(self) -> Runs | Literal["process"]:
        """How to call the function: as the built-in specifies, or `process` (loop or thread)."""
        if self.built_in is not None:
            return self.built_in.runs
        return "worker" if self.in_process is None else "process"

    @property
    def needs_answer(self) -> bool:
        """True if a sample without a gold answer cannot be scored."""
        return self.built_in is not None and self.built_in.needs_answer(**self.params)

    @property
    def needs_rollout(self) -> bool:
        """True if an answer without a rollout cannot be scored."""
        if self.rubric is not None:
            return self.rubric.shows_rollout
        return self.built_in is not None and self.built_in.reads_rollout

    @property
    def own_form(self) -> bool:
        """True if the function may expect its own form of answer, not a bare gold answer."""
        return self.built_in is None or self.built_in.own_form

    @property
    def spec(self) -> dict[str, Any]:
        """Facts that determine a verdict, as JSON: name, parameters, and hash of the file."""
        spec: dict[str, Any] = {"name": self.name, "params": dict(self.params)}
        if self.timeout_score is not None:
            spec["timeout_score"] = self.timeout_score
        if self.source is not None:
            spec["file"] = text_sha(self.source).hex()
        return spec

    @property
    def sha(self) -> bytes:
        """Identity of the function, its parameters and its file. Shape: [32] bytes."""
        return digest(self.spec)


def resolve(
    name: str | Callable[..., Any],
    params: Mapping[str, Any],
    timeout_s: float | None,
    base_dir: Path,
    *,
    load: bool = True,
) -> VerifyFunction:
    """Return the verify function that a config names, or one that calls a Python function.

    Relative paths are looked up in `base_dir`, the config's folder, then in the current folder.
    Without `load`, a file is read but not run, so the function cannot be called.

    Raises:
        ConfigError: The function or file does not exist or cannot be loaded, or a parameter is
            unknown or invalid. No other function ever replaces it.
    """
    if not isinstance(name, str):
        return resolve_callable(name, params, timeout_s)
    _check_plain(name, params)
    path, colon, func = name.rpartition(":")
    if colon and path.endswith(".py"):
        # A file name of the reference stands for a built-in, unless the file exists here.
        below = ("",) if path in REFERENCE_FILES else ("", *_FOLDERS)
        places = (user_code.find_file(folder + path, base_dir) for folder in below)
        found = next(filter(None, places), None)
        note = _taken_over(found, func) if found is not None else None
        if found is not None and note is None:
            return _custom(name, found, func, params, timeout_s, load=load)
        path = found.name if found is not None else path
        if path not in REFERENCE_FILES or func != "verify_func":
            raise ConfigError(
                f"verify {name}: there is no file {path}",
                hint=f"{user_code.looked_in(base_dir)}, including the subfolders"
                f" {' and '.join(_FOLDERS)}",
            )
        meant = dict(REFERENCE_FILES[path])
        name, params = meant.pop("name"), {**meant, **params}
        return replace(_built_in(name, params, timeout_s, base_dir), note=note)
    if name in BUILT_INS:
        return _built_in(name, params, timeout_s, base_dir)
    close = get_close_matches(name.lower(), BUILT_INS, 1)
    hint = f"use {_listed(BUILT_INS)}, or a function of your own as path.py:function"
    raise ConfigError(
        f"verify {name!r}: there is no such verify function",
        hint=f"did you mean {close[0]}?" if close else hint,
    )


def _taken_over(path: Path, func: str) -> str | None:
    """Return a note if the file belongs to the reference and its imports are missing; else None."""
    if path.name not in REFERENCE_FILES or func != "verify_func":
        return None
    try:
        needs = function_text.needs_of_reference(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    if needs is None:
        return None
    meant = dict(REFERENCE_FILES[path.name])
    with_params = "".join(f", {key}: {value}" for key, value in meant.items() if key != "name")
    return (
        f"{path} is not run because it imports {needs}, which is not installed: the built-in"
        f" {{name: {meant['name']}{with_params}}} takes over"
    )


def resolve_callable(
    function: Callable[..., Any], params: Mapping[str, Any], timeout_s: float | None = None
) -> VerifyFunction:
    """Return a verify function that calls a Python function in this process.

    A synchronous function runs on a thread, so it may block; unlike a function in a file, it cannot
    be killed. The function is identified by its source text: values captured by a closure are not
    part of its identity.

    Args:
        function: Called as `function(sample, **params)`; sync or async. If it takes `llm`, it
            receives a client for the judge model; async functions await the client's calls, and
            sync functions call it directly. The result is a number in [0, 1], a bool, or
            `{"reward": number, "reasoning": text or None}`.
        params: Parameters of the function; `timeout_score` is the reward for an answer that ran
            out of time.
        timeout_s: Seconds for one answer; None means one hour.

    Raises:
        ConfigError: The function cannot be called, its source is unavailable, or a parameter is
            invalid.
    """
    if isinstance(function, type):  # a call would create an object, not a reward
        raise ConfigError(
            f"verify {function.__name__}: a class is not a function", hint=_OBJECT_HINT
        )
    module, qualname = (getattr(function, key, None) for key in ("__module__", "__qualname__"))
    name = f"{module}:{qualname or type(function).__name__}"
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as e:
        raise ConfigError(
            f"verify {name}: its source, which is stored with scores, is unavailable: {e}",
            hint=_OBJECT_HINT,
        ) from e
    _check_plain(name, params)
    given, score = _split_timeout_score(name, params)
    is_async = user_code.is_async(function)
    wants = is_async or function_text.wants_llm(source, getattr(function, "__name__", ""))
    asks = wants and user_code.accepts(function, {**given, "llm": None}) is None
    if problem := user_code.accepts(function, {**given, "llm": None} if asks else given):
        raise ConfigError(f"verify {name}: it cannot be called with a sample: {problem}")
    return VerifyFunction(
        name,
        "function object",
        given,
        timeout_s or IN_PROCESS_TIMEOUT_S,
        score,
        source=source,
        in_process=function,
        asks_judge=asks,
    )


_OBJECT_HINT = "define it with `def` in a file, or give it as 'path.py:function'"


def check_defined(function: VerifyFunction) -> None:
    """Raise ConfigError if the user's file lacks the function; the file is not run."""
    file = function.file
    names = function_text.without(file.text, file.func) if file is not None else None
    if file is not None and names is not None:
        text = f"verify {function.name}: {file.path.name} does not define {file.func}"
        raise ConfigError(text, hint=_has(names))


def check_gold(function: VerifyFunction, sample: Sample | Gold) -> str | None:
    """Return why this function cannot use the sample's gold answer; None if it can.

    Called before any request is paid for; the reason names the gold answer.
    """
    golds = gold_texts(sample.answer)
    if not golds or not any(gold.strip() for gold in golds):
        return f"verify {function.name} needs an answer" if function.needs_answer else None
    if function.built_in is None:
        return None
    for gold in golds:
        if reason := function.built_in.unusable_gold(gold, sample.meta):
            shown = gold if len(gold) <= 100 else gold[:100] + "…"
            return f"the answer {shown!r} cannot be used by verify {function.name}: {reason}"
    return None


def _built_in(
    name: str, params: Mapping[str, Any], timeout_s: float | None, base_dir: Path
) -> VerifyFunction:
    built_in, known = BUILT_INS[name], BUILT_INS[name].params
    for key, value in params.items():
        if key not in known:
            close = get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"it takes {_listed(known)}"
            raise ConfigError(f"verify {name}: unknown parameter {key!r}", hint=hint)
        if not known[key].fits(value):
            raise ConfigError(f"verify {name}: {key} must be {known[key].wanted}, not {value!r}")
    for key, param in known.items():
        if param.required and key not in params:
            hint = f"for example {{name: {name}, {key}: …}}"
            raise ConfigError(f"verify {name}: needs a {key}", hint=hint)
    if problem := built_in.unusable_params(**params):
        raise ConfigError(f"verify {name}: {problem}")
    if built_in.runs != "judge":
        return VerifyFunction(name, name, dict(params), timeout_s or TIMEOUT_S)
    rubric = built_in.function(base_dir, timeout_s, **params)
    # Presets and templates are identified by text, so renaming one does not invalidate scores.
    kept = {k: v for k, v in params.items() if k not in ("template", "preset", "show")}
    if rubric.criteria is not None:
        kept["criteria"] = rubric.criteria
    return VerifyFunction(name, name, kept, timeout_s, source=rubric.prompt.text, rubric=rubric)


def _custom(
    name: str,
    path: Path,
    func: str,
    params: Mapping[str, Any],
    timeout_s: float | None,
    *,
    load: bool,
) -> VerifyFunction:
    function: Callable[..., Any] | None = None
    try:
        source = user_code.UserFunction(path, func, path.read_text("utf-8"))
        # In a separate process first: loading may hang, or end the interpreter.
        problem = source.rehearse() if load else None
        if problem:
            raise ConfigError(f"verify {name}: cannot load {path}: {problem}")
        function = source.load() if load else None
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"verify {name}: cannot read {path}: {e}") from e
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as e:  # a plug-in may raise anything
        hint = None
        if isinstance(e, AttributeError) and not hasattr(e.obj, func):
            names = re.findall(r"^(?:async )?def (\w+)", source.text, re.MULTILINE)
            hint = _has(names)
        line = user_code.line_of(e, str(path))
        at = f" (line {line})" if line is not None else ""
        raise ConfigError(
            f"verify {name}: cannot load it: {type(e).__name__}: {e}{at}", hint=hint
        ) from e
    given, score = _split_timeout_score(name, params)
    is_async = (
        function_text.defined_async(source.text, func)
        if function is None
        else user_code.is_async(function)
    )
    asks = is_async or function_text.wants_llm(source.text, func)
    called_with = {**given, "llm": None} if asks else given
    if function and (problem := user_code.accepts(function, called_with)):
        way = "an async function receives `llm`: add that parameter, or define it with `def`"
        raise ConfigError(
            f"verify {name}: it cannot be called as {func}(sample): {problem}",
            hint=way if is_async and "'llm'" in problem else None,
        )
    return VerifyFunction(
        name,
        "custom",
        given,
        timeout_s or (IN_PROCESS_TIMEOUT_S if asks else TIMEOUT_S),
        score,
        source,
        source.text,
        function if asks else None,
        asks,
    )


def _has(names: Sequence[str]) -> str:
    return f"the file defines {_listed(names)}"


def _check_plain(name: str, params: Mapping[str, Any]) -> None:
    try:
        digest(dict(params))
    except (TypeError, ValueError) as e:
        raise ConfigError(f"verify {name}: its parameters are not plain values: {e}") from e


def _split_timeout_score(
    name: str, params: Mapping[str, Any]
) -> tuple[dict[str, Any], float | None]:
    """Return the parameters without `timeout_score`, and the value of `timeout_score`."""
    given = dict(params)
    score = given.pop("timeout_score", None)
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise ConfigError(f"verify {name}: timeout_score must be a number, not {score!r}")
    if score is not None and not 0 <= score <= 1:
        raise ConfigError(f"verify {name}: timeout_score must be in [0, 1], not {score!r}")
    return given, score


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing"
