"""From a name in the config, or a Python function, to the verify function it means."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from grpo_practice import user_code
from grpo_practice.canonical import digest, text_sha
from grpo_practice.config.schema.runs import REFERENCE_FILES
from grpo_practice.errors import ConfigError
from grpo_practice.types import Sample
from grpo_practice.verify import builtin, judge, math
from grpo_practice.verify.answers import gold_texts

VerifyKind = Literal[
    "math", "exact", "contains", "regex", "choice", "judge", "custom", "function object"
]

PARAMS: Mapping[VerifyKind, Mapping[str, type]] = {
    "math": {"fast_path": bool},
    "exact": {"case_sensitive": bool},
    "contains": {"case_sensitive": bool},
    "regex": {"pattern": str},
    "choice": {},
    "judge": {"preset": str, "criteria": str, "template": str},
}
"""The built-ins, and what each can be told."""

TIMEOUT_S = 2.0
"""Seconds for one answer where nothing else is said."""
IN_PROCESS_TIMEOUT_S = 3_600.0
"""Seconds for a function in this process, which may have to wait for a model's turn."""


@dataclass(frozen=True, slots=True)
class VerifyFunction:
    """How answers are scored: a built-in or the user's function, with its parameters."""

    name: str
    """As configured; for a file of the reference that is not there, the built-in it means."""
    kind: VerifyKind
    params: Mapping[str, Any]
    timeout_s: float | None = None
    """Seconds for one answer; None leaves the built-in judge to the limits of its requests."""
    timeout_score: float | None = None
    """The reward of an answer that ran out of time, where the user set one."""
    file: user_code.UserFunction | None = None
    """The user's function as a file, which the workers load; None for any other."""
    source: str | None = field(default=None, repr=False)
    """The text of the user's file or function, or of the judge's template."""
    in_process: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    """The user's function itself where this process calls it: async, or given as an object."""
    asks_judge: bool = False
    """True for a function of the user's that takes `llm`, a client for the judge model."""
    rubric: judge.Rubric | None = field(default=None, compare=False, repr=False)
    """What the built-in judge is asked."""

    @property
    def is_judge(self) -> bool:
        """True when it may ask a model: scoring costs money."""
        return self.kind == "judge" or self.asks_judge

    @property
    def needs_answer(self) -> bool:
        """True when a sample without a gold cannot be scored."""
        return self.kind not in ("judge", "custom", "function object")

    @property
    def spec(self) -> dict[str, Any]:
        """What decides a verdict, as JSON: name, parameters, hash of the file."""
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
) -> VerifyFunction:
    """Return the verify function a config names, or a Python function as one.

    Args:
        name: `math`, `exact`, `contains`, `regex`, `choice`, `judge`, `path.py:func`, or a
            function itself.
        params: Its parameters, as configured.
        timeout_s: Seconds for one answer; None is the function's own default.
        base_dir: Where the config stands; relative paths start there, else where we are.

    Raises:
        ConfigError: There is no such function or file, it cannot be loaded, or a parameter is
            unknown or unfit. Never a fall-back to another function.
    """
    if not isinstance(name, str):
        return resolve_callable(name, params, timeout_s)
    _check_plain(name, params)
    path, colon, func = name.rpartition(":")
    if colon and path.endswith(".py"):
        found = _find(path, base_dir)
        if found is not None:
            return _custom(name, found, func, params, timeout_s)
        if path not in REFERENCE_FILES or func != "verify_func":
            raise ConfigError(
                f"verify {name}: there is no file {path}",
                hint=f"looked in {base_dir} and {Path.cwd()}",
            )
        meant = dict(REFERENCE_FILES[path])
        name, params = meant.pop("name"), {**meant, **params}
    for kind in PARAMS:
        if kind == name:
            return _built_in(kind, params, timeout_s, base_dir)
    raise ConfigError(f"verify {name!r}: there is no such verify function", hint=_hint(name))


def resolve_callable(
    function: Callable[..., Any], params: Mapping[str, Any], timeout_s: float | None = None
) -> VerifyFunction:
    """Return a verify function that calls a Python function in this process.

    A function that is not async runs on a thread, so it may block; unlike one in a file it cannot
    be killed. Its identity is its source: values it closes over do not count.

    Args:
        function: Called as `function(sample, **params)`; sync or async. Where it takes `llm`, it
            gets a client for the judge model if it is async. It returns a number in [0, 1], a
            bool, or `{"reward": number, "reasoning": text or None}`.
        params: Its parameters; `timeout_score` is the reward of an answer out of time.
        timeout_s: Seconds for one answer; None is an hour.

    Raises:
        ConfigError: It cannot be called, its source cannot be had, or a parameter is unfit.
    """
    if isinstance(function, type):  # calling it makes an object, not a reward
        raise ConfigError(f"verify {function.__name__}: a class is no function", hint=_OBJECT_HINT)
    module, qualname = (getattr(function, key, None) for key in ("__module__", "__qualname__"))
    name = f"{module}:{qualname or type(function).__name__}"
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as e:
        raise ConfigError(
            f"verify {name}: its source, which scores are stored with, cannot be had: {e}",
            hint=_OBJECT_HINT,
        ) from e
    _check_plain(name, params)
    given, score = _split_timeout_score(name, params)
    is_async = user_code.is_async(function)
    asks = is_async and user_code.accepts(function, {**given, "llm": None}) is None
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


def check_gold(function: VerifyFunction, sample: Sample) -> str | None:
    """Why this sample's gold cannot be used with this function; None when it can.

    Said before any call is paid; a reason names the gold.
    """
    golds = gold_texts(sample.answer)
    if not golds or not any(gold.strip() for gold in golds):
        return f"verify {function.name} needs an answer" if function.needs_answer else None
    for gold in golds:
        reason = None
        if function.kind == "math":
            reason = math.unusable(gold)
        elif function.kind == "choice":
            reason = builtin.unusable_choice(gold, sample.meta)
        if reason:
            shown = gold if len(gold) <= 100 else gold[:100] + "…"
            return f"the answer {shown!r} cannot be used by verify {function.name}: {reason}"
    return None


def _built_in(
    kind: VerifyKind, params: Mapping[str, Any], timeout_s: float | None, base_dir: Path
) -> VerifyFunction:
    known = PARAMS[kind]
    for key, value in params.items():
        if key not in known:
            close = get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"it takes {_listed(known)}"
            raise ConfigError(f"verify {kind}: unknown parameter {key!r}", hint=hint)
        if not isinstance(value, known[key]):
            wanted = {bool: "true or false", str: "text"}[known[key]]
            raise ConfigError(f"verify {kind}: {key} must be {wanted}, not {value!r}")
    if kind == "regex":
        _check_pattern(params)
    if kind == "judge":
        return _judge(params, timeout_s, base_dir)
    return VerifyFunction(kind, kind, dict(params), timeout_s or TIMEOUT_S)


def _judge(params: Mapping[str, Any], timeout_s: float | None, base_dir: Path) -> VerifyFunction:
    """The built-in judge. What a preset says is known by its text, as the user's own criteria."""
    template = params.get("template")
    path = _find(template, base_dir) if template else None
    if template and path is None:
        raise ConfigError(
            f"verify judge: there is no template {template}",
            hint=f"looked in {base_dir} and {Path.cwd()}",
        )
    criteria = judge.criteria_of(params.get("preset"), params.get("criteria"))
    kept = {k: v for k, v in params.items() if k not in ("template", "preset")}
    if criteria is not None:
        kept["criteria"] = criteria
    rubric = judge.Rubric(judge.load_template(path), criteria, timeout_s)
    return VerifyFunction(
        "judge", "judge", kept, timeout_s, source=rubric.prompt.text, rubric=rubric
    )


def _check_pattern(params: Mapping[str, Any]) -> None:
    if "pattern" not in params:
        raise ConfigError(
            "verify regex: needs a pattern",
            hint="for example {name: regex, pattern: 'Answer: (\\w+)'}",
        )
    try:
        re.compile(params["pattern"])
    except re.error as e:
        raise ConfigError(f"verify regex: {params['pattern']!r} is not a pattern: {e}") from e


def _custom(
    name: str, path: Path, func: str, params: Mapping[str, Any], timeout_s: float | None
) -> VerifyFunction:
    try:
        source = user_code.UserFunction(path, func, path.read_text("utf-8"))
        if problem := source.rehearse():
            raise ConfigError(f"verify {name}: cannot load {path}: {problem}")
        function = source.load()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"verify {name}: cannot read {path}: {e}") from e
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as e:  # whatever a plug-in raises
        hint = None
        if isinstance(e, AttributeError) and not hasattr(e.obj, func):
            names = re.findall(r"^(?:async )?def (\w+)", source.text, re.MULTILINE)
            hint = f"it has {_listed(names)}"
        raise ConfigError(
            f"verify {name}: cannot load it: {type(e).__name__}: {e}", hint=hint
        ) from e
    given, score = _split_timeout_score(name, params)
    is_async = user_code.is_async(function)
    called_with = {**given, "llm": None} if is_async else given
    if problem := user_code.accepts(function, called_with):
        raise ConfigError(f"verify {name}: it cannot be called as {func}(sample): {problem}")
    return VerifyFunction(
        name,
        "custom",
        given,
        timeout_s or (IN_PROCESS_TIMEOUT_S if is_async else TIMEOUT_S),
        score,
        source,
        source.text,
        function if is_async else None,
        is_async,
    )


def _check_plain(name: str, params: Mapping[str, Any]) -> None:
    try:
        digest(dict(params))
    except (TypeError, ValueError) as e:
        raise ConfigError(f"verify {name}: its parameters are not plain values: {e}") from e


def _split_timeout_score(
    name: str, params: Mapping[str, Any]
) -> tuple[dict[str, Any], float | None]:
    """Return the parameters without `timeout_score`, and that."""
    given = dict(params)
    score = given.pop("timeout_score", None)
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise ConfigError(f"verify {name}: timeout_score must be a number, not {score!r}")
    if score is not None and not 0 <= score <= 1:
        raise ConfigError(f"verify {name}: timeout_score must be in [0, 1], not {score!r}")
    return given, score


def _find(name: str, base_dir: Path) -> Path | None:
    """The file, beside the config or else where we are."""
    places = (base_dir / Path(name).expanduser(), Path.cwd() / name)
    return next((place.resolve() for place in places if place.is_file()), None)


def _hint(name: str) -> str:
    close = get_close_matches(name.lower(), PARAMS, 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"there are {_listed(PARAMS)}, and your own as path.py:function"


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing"
