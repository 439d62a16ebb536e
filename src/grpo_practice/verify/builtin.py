"""The built-in verify functions: those that compare text, and the table of all."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from grpo_practice.text import strip_think
from grpo_practice.types import Sample, Verdict
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

_DRESS = " \t*_`\"'"
_EMPHASIS = " \t*`"


def exact(sample: Sample, response: str, *, case_sensitive: bool = False) -> Verdict:
    """Return 1.0 when the last box, else the last line, is the gold; case and spaces folded.

    A gold of several lines is compared with as many of the last ones.
    """
    read = last_box(response) or last_line(response) or ""
    said = read.strip(_DRESS)
    # Quotes, underscores or "Answer:" may be the gold's own: `__init__`, "'tis", `"x"`.
    texts = {read, said, said.rstrip("."), read.strip(_EMPHASIS), read.strip(_EMPHASIS + "_")}
    for gold in gold_texts(sample.answer):
        height = sum(1 for line in gold.splitlines() if line.strip())
        as_many = last_lines(response, max(1, height))
        for text in {*texts, as_many}:
            if text and folded(text, case_sensitive) == folded(gold, case_sensitive):
                return Verdict(1.0, extracted=said or text)
    return _missed(sample, f"the answer was {said!r}" if said else "there was no answer", said)


def contains(sample: Sample, response: str, *, case_sensitive: bool = False) -> Verdict:
    """Return 1.0 when the gold stands in the response as whole words.

    A gold of 4 is not in 42, 4.2, -4 or 4,000; 北京 is in 答案是北京, where no space ends a word.
    """
    visible = folded(strip_think(response) or "", case_sensitive)
    for gold in gold_texts(sample.answer):
        wanted = folded(gold, case_sensitive)
        if wanted and re.search(_standing(wanted), visible):
            return Verdict(1.0, extracted=gold)
    return _missed(sample, "it does not stand in the response")


def _standing(wanted: str) -> str:
    """Return a pattern of the text where no word and no number goes on before or after it."""
    before = f"(?<!{LETTER})" if re.match(LETTER, wanted) else ""
    after = f"(?!{LETTER})" if re.match(LETTER, wanted[-1]) else ""
    if wanted[0].isdigit():
        before += r"(?<!\d\.)(?<!(?<![\w)\]])[-\u2212])"
        before += r"(?<!\d,)" if re.match(r"\d{3}(?!\d)", wanted) else ""
    if wanted[-1].isdigit():
        after += r"(?!\.\d)(?!,\d{3}(?!\d))"
    return before + re.escape(wanted) + after


def choice(sample: Sample, response: str, *, all: bool = False) -> Verdict:
    """Return 1.0 when the option stated last is the gold's.

    The options are the sample's `meta.options` or `meta.choices` (a list, or a mapping of letters
    to texts); without them any letter is one. The gold is a letter or an option's text.

    With `all`, or where the sample's `meta.select` is `all`, the options stated last must be
    exactly the gold's: a list, or a text such as `A, C`. Such a text always means all of them.
    """
    options = options_of(sample.meta)
    golds = [letters_of(gold, options) for gold in gold_texts(sample.answer)]
    exactly = all or sample.meta.get("select") == "all"
    wanted = {frozenset[str]().union(*golds)} if exactly else {*golds}
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
    """Return 1.0 when what the pattern's last match captures is the gold; case folded.

    The first group that took part is what is read, else the whole match.
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
        return f"{pattern!r} is not a pattern: {e}"
    return None


Runs = Literal["loop", "worker", "math", "judge"]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in verify function. Everything that lists, checks or calls built-ins reads this."""

    function: Callable[..., Any]
    """`function(sample, response, *, …) -> Verdict`, except where `runs` says otherwise. The
    keyword-only parameters (bool, str, int, float) are what a config may set."""
    about: str
    """Responses that get reward 1, in one line."""
    runs: Runs = "loop"
    """How it is called: `loop`, at once, for what takes microseconds on any input; `worker`, in a
    process that is killed at the time limit; `math` and `judge`, as only those two are."""
    unusable_gold: Callable[[str, Mapping[str, Any]], str | None] = lambda gold, meta: None
    """Why no answer could ever match this gold of a sample with this `meta`; None: one can."""
    unusable_params: Callable[..., str | None] = lambda **params: None
    """Why these parameters, which have the right types, cannot be used; None: they can."""
    needs_answer: bool = True
    """Whether a sample without a gold cannot be scored."""
    extracts: bool = True
    """Whether it reads the answer out of a response, also where that is wrong."""
    own_form: bool = False
    """Whether the config says which form an answer has, so that a bare gold may be none."""

    @property
    def params(self) -> dict[str, "Param"]:
        """The parameters a config may set, in the function's order."""
        found = {}
        for name, p in inspect.signature(self.function, eval_str=True).parameters.items():
            if p.kind is p.KEYWORD_ONLY:
                # The one type of an annotation that may also allow None.
                (kind,) = {*(get_args(p.annotation) or (p.annotation,))} - {type(None)}
                found[name] = Param(kind, p.default is p.empty)
        return found


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a built-in verify function."""

    type: type
    required: bool

    @property
    def wanted(self) -> str:
        """Type in words."""
        return {bool: "true or false", str: "text", int: "a whole number", float: "a number"}[
            self.type
        ]

    def fits(self, value: object) -> bool:
        """Return True for a value of its type; a bool is no number."""
        if isinstance(value, bool):
            return self.type is bool
        return isinstance(value, int | float if self.type is float else self.type)


BUILT_INS: Mapping[str, BuiltIn] = {
    "choice": BuiltIn(
        choice, "the option stated last is the gold's letter", unusable_gold=_unusable_choice
    ),
    "math": BuiltIn(
        math.at_once,
        "the last box, number or expression is the gold, compared as mathematics",
        runs="math",
        unusable_gold=lambda gold, meta: math.unusable(gold),
    ),
    "exact": BuiltIn(exact, "the last box or line is the gold, but for case and spaces"),
    "contains": BuiltIn(contains, "the gold stands in the response", extracts=False),
    "regex": BuiltIn(
        regex,
        "what a pattern captures is the gold",
        runs="worker",
        unusable_params=_unusable_pattern,
        own_form=True,
    ),
    "judge": BuiltIn(
        judge.rubric_of,
        "a model finds the answer correct",
        runs="judge",
        needs_answer=False,
        extracts=False,
    ),
}
"""Name in a config → function; in lists and proposals the strictest about answers comes first."""
