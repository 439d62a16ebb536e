"""The built-in verify functions: those that compare text, and a table of all of them."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from grpo_practice.core.text import strip_think
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify import judge, math
from grpo_practice.verify.answers import gold_texts, last_box, last_line, last_lines
from grpo_practice.verify.chosen_options import (
    LETTER,
    chosen_letter,
    chosen_letters,
    folded,
    letters_of,
    options_of,
)
from grpo_practice.verify.tool_calls import names_answer, tool_calls, unusable_rules

_DRESS = " \t*_`\"'"
_EMPHASIS = " \t*`"


def exact(sample: Sample, response: str, *, case_sensitive: bool = False) -> Verdict:
    """Return 1.0 if the last box or line equals the gold answer, ignoring case and extra spaces.

    A gold answer of several lines is compared with the same number of last lines.
    """
    read = last_box(response) or last_line(response) or ""
    said = read.strip(_DRESS)
    # Quotes, underscores or "Answer:" may belong to the gold answer: `__init__`, "'tis", `"x"`.
    texts = {read, said, said.rstrip("."), read.strip(_EMPHASIS), read.strip(_EMPHASIS + "_")}
    for gold in gold_texts(sample.answer):
        height = sum(1 for line in gold.splitlines() if line.strip())
        as_many = last_lines(response, max(1, height))
        for text in {*texts, as_many}:
            if text and folded(text, case_sensitive) == folded(gold, case_sensitive):
                return Verdict(1.0, extracted=said or text)
    return _missed(sample, f"the answer was {said!r}" if said else "there was no answer", said)


def contains(sample: Sample, response: str, *, case_sensitive: bool = False) -> Verdict:
    """Return 1.0 if the response contains the gold answer as whole words.

    The gold answer 4 is not found in 42, 4.2, -4 or 4,000; 北京 is found in 答案是北京,
    because Chinese does not separate words by spaces.
    """
    visible = folded(strip_think(response) or "", case_sensitive)
    for gold in gold_texts(sample.answer):
        wanted = folded(gold, case_sensitive)
        if wanted and re.search(_standing(wanted), visible):
            return Verdict(1.0, extracted=gold)
    return _missed(sample, "the response does not contain it")


def _standing(wanted: str) -> str:
    """Return a regex that matches the text as a whole word or number."""
    before = f"(?<!{LETTER})" if re.match(LETTER, wanted) else ""
    after = f"(?!{LETTER})" if re.match(LETTER, wanted[-1]) else ""
    if wanted[0].isdigit():
        # Refuse the places after a point and negative numbers; after a word or a bracket, a minus
        # is a subtraction.
        before += r"(?<!\d\.)(?<!(?<![\w)\]])[-\u2212])"
        before += r"(?<!\d,)" if re.match(r"\d{3}(?!\d)", wanted) else ""
    if wanted[-1].isdigit():
        # The number must not go on, as 4 does in 4.2 and in 4,000.
        after += r"(?!\.\d)(?!,\d{3}(?!\d))"
    return before + re.escape(wanted) + after


def choice(sample: Sample, response: str, *, all: bool = False) -> Verdict:
    """Return 1.0 if the last stated option is the correct one.

    The options are the sample's `meta.options` or `meta.choices` (a list, or a mapping of letters
    to texts); without these, any letter is an option. The gold answer is a letter or the text of an
    option. With `all`, or if the sample's `meta.select` is `all`, the last stated options must be
    exactly the options in the gold answer: a list, or a text such as `A, C`. Such a text always
    means all the options in it.
    """
    options = options_of(sample.meta)
    golds = [letters_of(gold, options) for gold in gold_texts(sample.answer)]
    exactly = all or sample.meta.get("select") == "all"
    wanted = {frozenset[str]().union(*golds)} if exactly else {*golds}
    # A gold that names no option would equal an answer that chooses none.
    wanted.discard(frozenset())
    if exactly or any(len(letters) > 1 for letters in wanted):
        chosen = chosen_letters(response, options)
    else:
        letter = chosen_letter(response, options)
        chosen = frozenset({letter} if letter else ())
    said = ", ".join(sorted(chosen)) or None
    if chosen in wanted:
        return Verdict(1.0, extracted=said)
    what = f"the answer was {said}" if said else "no option was chosen"
    expected = " or ".join(sorted(", ".join(sorted(letters)) for letters in wanted))
    return (
        Verdict(0.0, f"expected {expected}; {what}", said)
        if exactly
        else _missed(sample, what, said)
    )


def regex(sample: Sample, response: str, *, pattern: str) -> Verdict:
    """Return 1.0 if the text captured by the last match equals the gold answer, ignoring case.

    The captured text is the first group that took part in the match, otherwise the whole match.
    """
    said = None
    for match in re.finditer(pattern, strip_think(response) or ""):
        said = next((group for group in match.groups() if group is not None), match[0])
    if said is None:
        return _missed(sample, "the pattern does not match")
    if folded(said, False) in [folded(gold, False) for gold in gold_texts(sample.answer)]:
        return Verdict(1.0, extracted=said)
    return _missed(sample, f"the answer was {said!r}", said)


def _unusable_choice(gold: str, meta: Mapping[str, Any]) -> str | None:
    options = options_of(meta)
    if letters_of(gold, options):
        return None
    return f"it is neither {', '.join(options) or 'a letter'} nor the text of an option"


def _missed(sample: Sample, what: str, said: str | None = None) -> Verdict:
    return Verdict(0.0, f"expected {' or '.join(gold_texts(sample.answer))}; {what}", said or None)


def _unusable_pattern(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as e:
        return f"{pattern!r} is not a valid pattern: {e}"
    return None


Runs = Literal["loop", "worker", "math", "judge"]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in verify function, as used by all code that lists, checks or calls built-ins."""

    function: Callable[..., Any]
    """The function, called as `function(sample, response, *, …) -> Verdict`, unless `runs`
    specifies another call. A config may set its keyword-only parameters (bool, str, int,
    float, list, dict).
    """
    about: str
    """Description, in one line, of the responses that get reward 1."""
    runs: Runs = "loop"
    """How the function is called. `loop`: directly, for functions that take microseconds on any
    input; `worker`: in a process that is killed at the time limit; `math` and `judge`: special
    cases for the functions with these names.
    """
    unusable_gold: Callable[[str, Mapping[str, Any]], str | None] = lambda gold, meta: None
    """Returns why no response can match this gold answer, given the sample's `meta`; None if one
    can.
    """
    unusable_params: Callable[..., str | None] = lambda **params: None
    """Returns why these parameters, whose types are already correct, are unusable; None if they
    are usable.
    """
    needs_answer: Callable[..., bool] = lambda **params: True
    """Returns whether a sample without a gold answer cannot be scored with these parameters."""
    reads_rollout: bool = False
    """Whether the function scores the actions of the agent: it also receives the rollout's tool
    calls, as `function(sample, response, calls, *, …)`, and cannot score an answer without a
    rollout.
    """
    own_form: bool = False
    """Whether the config determines the form of an answer, so that a bare gold answer may not have
    this form.
    """

    @property
    def params(self) -> dict[str, "Param"]:
        """Parameters that a config may set, in the order of the function's signature."""
        found = {}
        for name, p in inspect.signature(self.function, eval_str=True).parameters.items():
            if p.kind is p.KEYWORD_ONLY:
                # An annotation has exactly one type besides an optional None.
                (kind,) = {*(get_args(p.annotation) or (p.annotation,))} - {type(None)}
                found[name] = Param(get_origin(kind) or kind, p.default is p.empty)
        return found


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a built-in verify function."""

    type: type
    required: bool

    @property
    def wanted(self) -> str:
        """The type in words."""
        words = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}
        return (words | {list: "a list", dict: "a mapping"})[self.type]

    def fits(self, value: object) -> bool:
        """Return whether a value has the type; a bool is not a number."""
        if isinstance(value, bool):
            return self.type is bool
        return isinstance(value, int | float if self.type is float else self.type)


BUILT_INS: Mapping[str, BuiltIn] = {
    "choice": BuiltIn(
        choice, "the last stated option is the correct one", unusable_gold=_unusable_choice
    ),
    "math": BuiltIn(
        math.at_once,
        "the last box, number or expression equals the gold answer, compared mathematically",
        runs="math",
        unusable_gold=lambda gold, meta: math.unusable(gold),
    ),
    "exact": BuiltIn(
        exact, "the last box or line equals the gold answer, ignoring case and spaces"
    ),
    "contains": BuiltIn(contains, "the response contains the gold answer"),
    "regex": BuiltIn(
        regex,
        "the text captured by a pattern equals the gold answer",
        runs="worker",
        unusable_params=_unusable_pattern,
        own_form=True,
    ),
    "tool_calls": BuiltIn(
        tool_calls,
        "the tool calls of the rollout follow all the rules",
        runs="worker",
        unusable_params=unusable_rules,
        needs_answer=names_answer,
        reads_rollout=True,
        own_form=True,
    ),
    "judge": BuiltIn(
        judge.rubric_of,
        "a model finds the answer correct",
        runs="judge",
        needs_answer=lambda **params: False,
    ),
}
"""Name in a config → function; lists and proposals show the strictest extraction first."""
