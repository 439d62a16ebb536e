"""Rendering of templates; stored text is always escaped, so it cannot act as markup."""

import base64
import hashlib
import math
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grpo_practice.core.text import brief, count, cut, visible
from grpo_practice.reports.base import number
from grpo_practice.sim.experience_texts import flaw
from grpo_practice.viewer.mathml import with_formulas

LINE = 160
"""Maximum number of characters of a stored text shown on one line."""
BODY = 4_000
"""Maximum number of characters of a stored text shown as a block."""


def render(template: str, **values: Any) -> str:
    """Return the rendered template; raise jinja2.UndefinedError if a value is missing."""
    return _environment().get_template(template).render(values)


def style() -> str:
    """Return the style sheet shared by all pages."""
    return (files("grpo_practice.viewer") / "templates" / "style.css").read_text("utf-8")


def style_hash(text: str) -> str:
    """Return the hash that permits an inline style sheet in a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("grpo_practice.viewer"),
        # Always escape, because the usual rule by file suffix would not escape fragments without
        # one.
        autoescape=True,
        # Not isinstance, because Markup is a subclass of str and must keep its type.
        finalize=lambda value: visible(value) if type(value) is str else value,
        # A misspelt name is an error in tests, not an empty place on a page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "line": line,
        "body": body,
        "experience": experience,
        "name": name,
        "reward": number,
        "share": share,
        "points": points,
        "usd": usd,
        "tokens": tokens,
        "seconds": seconds,
        "figure": figure,
        "when": when,
        "count": count,
        "sheet": Markup,  # only for our own style sheet
    }
    return environment


def line(text: object, chars: int = LINE) -> str:
    """Return a stored text on one line of at most `chars` characters."""
    return brief(str(text), chars)


def body(text: object, chars: int = BODY) -> str:
    """Return a stored text with its line breaks, and a note on the length of any cut."""
    # Cut first, because an untrusted text may be megabytes long.
    return visible(cut(str(text), chars))


def name(text: object) -> Markup:
    """Return the name of a run or a file, which a narrow page breaks only after a slash."""
    return Markup("/<wbr>").join(line(text, 200).split("/"))


def experience(text: object, chars: int = BODY) -> Markup:
    """Return an experience or a lesson with its formulas, and what the simulation did wrong in it.

    Such a text is short, so its line breaks are not kept.
    """
    told = with_formulas(line(text, chars))
    if "(#" not in told or not (wrong := flaw(str(text))):
        return told
    return told + Markup(' <span class="small bad">({})</span>').format(wrong)


def share(value: float | None) -> str:
    """Format a share as a percentage: `61.2 %`; a dash for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """Format a difference of shares in signed points: `+8.1`; a dash for None."""
    return "-" if value is None else f"{100 * value:+.1f}".replace("-", "\u2212")


def usd(value: float | None) -> str:
    """Format an amount of money: `$0.42`, `$0.000120`; `unknown` for None."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if value >= 0.01 or value == 0 else f"${value:.6f}"


def tokens(value: int | None) -> str:
    """Format a number of tokens: `950`, `12.3k`, `1.23M`; `unknown` for None."""
    if value is None:
        return "unknown"
    if value < 10_000:
        return f"{value:,}"
    return f"{value / 1e3:.1f}k" if value < 999_950 else f"{value / 1e6:.2f}M"


def figure(value: float | None) -> str:
    """Format a number of any size: `0.0123`, `1e-05`; a dash for None."""
    return "-" if value is None else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """Format a duration: `4.2 s`, `3 min 10 s`; a dash for None or infinity."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60} min"


def when(stored: str | None) -> str:
    """Format a stored time to the minute: `2026-11-22 14:03 UTC`; a dash for None."""
    return f"{stored[:10]} {stored[11:16]} UTC" if stored else "-"
