"""LaTeX formulas in stored texts as MathML, which browsers show without a script.

Only the notation of short formulas is known. A formula with anything else stays as it is written.
"""

import re
from collections.abc import Mapping
from unicodedata import lookup

from markupsafe import Markup, escape

DEEPEST = 20
"""Maximum depth of nested groups, since stored texts may be hostile."""
# As in Pandoc: amounts such as `$5 or $6` are no formulas.
_FORMULA = re.compile(
    r"\$\$(?P<a>[^$]{1,400})\$\$|\$(?P<b>(?!\s)[^$]{1,400}(?<!\s))\$(?!\d)"
    r"|\\\((?P<c>.{1,400}?)\\\)|\\\[(?P<d>.{1,400}?)\\\]",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"\\(?:text|mathrm|operatorname)\s*\{[^{}]*\}|\\[a-zA-Z]+|\\.|\d+(?:[.,]\d+)?|[^\s]"
)
_GREEK = ["alpha", "beta", "gamma", "delta", "epsilon", "theta", "mu", "pi", "rho", "sigma", "tau"]
_GREEK += ["phi", "omega"]
_SIGNS: Mapping[str, str] = {
    **{name: lookup(f"GREEK SMALL LETTER {name}") for name in _GREEK}, "lambda": "\u03bb",
    "Delta": "\u0394", "Sigma": "\u03a3",
    "times": "\u00d7", "cdot": "\u00b7", "div": "\u00f7", "pm": "\u00b1",
    "leq": "\u2264", "le": "\u2264", "geq": "\u2265", "ge": "\u2265",
    "neq": "\u2260", "ne": "\u2260",
    "approx": "\u2248", "equiv": "\u2261", "to": "\u2192", "rightarrow": "\u2192", "in": "\u2208",
    "infty": "\u221e", "sum": "\u2211", "prod": "\u220f", "ldots": "\u2026", "dots": "\u2026",
    "cdots": "\u22ef", "lfloor": "\u230a", "rfloor": "\u230b", "lceil": "\u2308", "rceil": "\u2309",
    "left": "", "right": "", "quad": "", "%": "%", "$": "$", "{": "{", "}": "}", ",": "", ";": "",
    " ": "", "!": "",
}  # fmt: skip
_OVER: Mapping[str, str] = {"bar": "\u00af", "overline": "\u00af", "hat": "^", "vec": "\u2192"}


class _UnknownError(Exception):
    """A notation that is not known."""


def with_formulas(text: str) -> Markup:
    """Return the text as HTML: formulas as MathML, and everything else escaped."""
    made, end = Markup(), 0
    for match in _FORMULA.finditer(text):
        source = next(group for group in match.groups() if group is not None)
        try:
            shown = Markup("<math>{}</math>").format(_Reader(_TOKEN.findall(source)).row(""))
        except _UnknownError:
            shown = escape(match[0])
        made += escape(text[end : match.start()]) + shown
        end = match.end()
    return made + escape(text[end:])


class _Reader:
    """Reads the tokens of a formula from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    def row(self, until: str) -> Markup:
        """Return all parts up to this token, as one element."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _UnknownError
        parts = list[Markup]()
        while (token := self._next()) != until:
            parts.append(self._scripts(self._part(token)))
        self.depth -= 1
        return Markup("<mrow>{}</mrow>").format(Markup().join(parts))

    def _next(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        self.at += 1
        return token

    def _scripts(self, base: Markup) -> Markup:
        """Return a part with the subscript and the superscript that follow it."""
        found = dict[str, Markup]()
        while self.tokens[self.at : self.at + 1] in (["^"], ["_"]):
            if (place := self._next()) in found:
                raise _UnknownError
            found[place] = self._part(self._next())
        match sorted(found):
            case []:
                return base
            case [one]:
                return _element("msup" if one == "^" else "msub", base, found[one])
            case _:
                return _element("msubsup", base, found["_"], found["^"])

    def _part(self, token: str) -> Markup:
        name = token.removeprefix("\\")
        if token == "{":
            return self.row("}")
        if token in ("", "}", "^", "_", "&", "\\\\"):
            raise _UnknownError
        if token == name:
            kind = "mn" if token[0].isdigit() else "mi" if token.isalpha() else "mo"
            return _element(kind, "\u2212" if token == "-" else token)
        if name in ("frac", "dfrac", "tfrac"):
            return _element("mfrac", self._part(self._next()), self._part(self._next()))
        if name == "sqrt" and self.tokens[self.at : self.at + 1] != ["["]:
            return _element("msqrt", self._part(self._next()))
        if name in _OVER:
            return _element("mover", self._part(self._next()), _element("mo", _OVER[name]))
        if "{" in name[1:]:
            return _element("mtext", name[name.index("{") + 1 : -1])
        if name not in _SIGNS:
            raise _UnknownError
        return _element("mi" if name in _GREEK else "mo", _SIGNS[name])


def _element(name: str, *parts: str) -> Markup:
    return Markup("<{0}>{1}</{0}>").format(Markup(name), Markup().join(parts))
