"""The language of prompt templates: slots, loops and conditions, but nothing that runs Python.

A template may be untrusted: it may come from someone else's folder, or from a run in someone else's
database. Therefore the syntax tree is checked against a list of permitted elements before Jinja
compiles it, values expose fields and items but no Python attributes, and the cost of a template is
limited.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

import jinja2
from jinja2 import StrictUndefined, TemplateRuntimeError, TemplateSyntaxError, Undefined
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import htmlsafe_json_dumps, pass_context
from typing_extensions import override

from grpo_practice.core.prompts import TemplateFault
from grpo_practice.core.prompts.syntax import EACH, LOOP_FIELDS, TESTS, WEIGHED, Checker

TEXT = 100_000
"""Maximum length of a template, in characters."""
OUTPUT = 10_000_000
"""Maximum length of a rendered text, in characters."""
WORK = 50_000_000
"""Maximum work for one rendering; each character read or compared is one unit."""
_FILE = "<template>"
"""File name that Jinja gives to a template compiled from text."""


class _TooMuchError(TemplateRuntimeError):
    """The template produces too long a text, or takes too much work."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template, checked and compiled."""

    slots: frozenset[str]
    """Names of the values that it uses."""
    _compiled: jinja2.Template

    def render(self, values: Mapping[str, object]) -> str:
        """Fill the slots.

        Raises:
            TemplateFault: The template uses a missing value, or exceeds a limit.
        """
        pieces, length = list[str](), 0
        try:
            for piece in self._compiled.generate(values):
                length += len(piece)
                _check_length(length)
                pieces.append(piece)
        except Exception as e:  # a filter may raise anything for unsuitable values
            raise TemplateFault(str(e) or type(e).__name__, _line_of(e)) from e
        return "".join(pieces)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja without globals, Python attributes or anything else that is not explicitly allowed."""

    def __init__(self, filters: Mapping[str, Callable[..., object]]) -> None:
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            optimized=False,  # the optimizer evaluates constants during compilation
        )
        self.context_class = _Rendering
        self.globals.clear()
        self.allowed = frozenset({*_FILTERS, *filters})
        """Filters that a template may use."""
        known = {name: _metered(filter_) for name, filter_ in {**_FILTERS, **filters}.items()}
        # EACH and WEIGHED are not in `allowed`: only the checker may insert them.
        self.filters = {**known, EACH: _each, WEIGHED: _weighed}
        self.tests = {name: self.tests[name] for name in TESTS}

    @property
    def language(self) -> str:
        """Sentence that lists everything a template may contain."""
        return (
            "a prompt may have {{ slot }}, {{ slot.field }}, {{ slot[key] }}, for, if, elif, else,"
            " comparisons, and, or, not, in, is, and the filters"
            f" {', '.join(sorted(self.allowed))}; between {{% raw %}} and {{% endraw %}} braces"
            " are text"
        )

    def compiled(self, text: str, line: int = 1) -> Template:
        """Compile a text that starts at the given line of its file, or raise TemplateFault."""
        if len(text) > TEXT:
            raise TemplateFault(f"it has {len(text):,} characters; {TEXT:,} are allowed", None)
        try:
            # Empty lines make Jinja report the file's line numbers; they are stripped when
            # rendering.
            tree = self.parse("\n" * (line - 1) + text)
            checker = Checker(self, self.allowed)
            checker.check(tree)
            return Template(frozenset(checker.slots), self.from_string(tree))
        except TemplateSyntaxError as e:
            raise TemplateFault(e.message or "it is not a template", e.lineno) from e
        except RecursionError as e:
            raise TemplateFault("it is nested too deeply", None) from e
        except Exception as e:  # such as a number of 5,000 digits or a lone surrogate
            raise TemplateFault(str(e) or type(e).__name__, None) from e

    @override
    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a field of a mapping or of `loop`; Python attributes are not accessible."""
        if isinstance(obj, LoopContext) and attribute in LOOP_FIELDS:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    @override
    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item of a mapping or of a list."""
        try:
            if isinstance(obj, Mapping) or (
                isinstance(obj, list | tuple) and type(argument) is int
            ):
                return obj[argument]
        except (TypeError, LookupError):
            pass
        # Keep an undefined value undefined; it raises when it is used.
        return obj if isinstance(obj, Undefined) else self.undefined(obj=obj, name=argument)


class _Rendering(Context):
    """Values of one rendering, and its remaining work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._work = WORK

    def spend(self, units: int) -> None:
        """Subtract units from the remaining work; raise if it is used up."""
        self._work -= units
        if self._work < 0:
            raise _TooMuchError("its loops, comparisons and filters take too much work")


def _check_length(length: int) -> None:
    if length > OUTPUT:
        raise _TooMuchError(f"it produces more than {OUTPUT:,} characters")


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | list | tuple | Mapping) else 1


@pass_context
def _each(rendering: _Rendering, items: Iterable[object], cost: int) -> Iterator[object]:
    for item in items:
        rendering.spend(cost)
        yield item


@pass_context
def _weighed(rendering: _Rendering, value: object) -> object:
    rendering.spend(_size(value))
    return value


def _metered(filter_: Callable[..., object]) -> Callable[..., object]:
    """Wrap the filter so that it costs work and cannot produce too long a text."""

    # Since it takes the context, it is never called while a template is compiled.
    @pass_context
    def metered(rendering: _Rendering, value: object, *args: object, **named: object) -> object:
        rendering.spend(_size(value))
        result = filter_(value, *args, **named)
        rendering.spend(_size(result))
        return result

    return metered


def _replace(value: object, old: object, new: object) -> str:
    text, was, now = str(value), str(old), str(new)
    # Check the length before building the text: a chain of these would multiply it.
    _check_length(len(text) + text.count(was) * (len(now) - len(was)))
    return text.replace(was, now)


def _join(value: Sequence[object], separator: object = "") -> str:
    texts, between = [str(item) for item in value], str(separator)
    _check_length(sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)


def _default(value: object, instead: object = "", boolean: bool = False) -> object:
    missing = isinstance(value, Undefined) or (boolean and not value)
    return instead if missing else value


_FILTERS: Mapping[str, Callable[..., object]] = {
    "default": _default,
    "join": _join,
    "length": len,
    "lower": lambda value: str(value).lower(),
    "replace": _replace,
    "tojson": lambda value: str(htmlsafe_json_dumps(value, sort_keys=True)),
    "trim": lambda value: str(value).strip(),
    "upper": lambda value: str(value).upper(),
}


def _line_of(error: BaseException) -> int | None:
    """Return the template line that raised the error; Jinja puts these lines into the traceback."""
    lines = [at for frame, at in walk_tb(error.__traceback__) if frame.f_code.co_filename == _FILE]
    return lines[-1] if lines else None
