"""Pages made of templates: whatever is stored stands in them as text, and acts as nothing."""

import base64
import hashlib
import math
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grpo_practice.reports.base import number
from grpo_practice.text import brief, count, cut, visible

LINE = 160
"""Characters of a stored text that is shown in one line."""
BODY = 4_000
"""Characters of a stored text that is shown whole."""


def render(template: str, **values: Any) -> str:
    """Return a template's page; a value that is missing raises jinja2.UndefinedError."""
    return _environment().get_template(template).render(values)


def style() -> str:
    """Return the style sheet of all pages."""
    return (files("grpo_practice.see") / "templates" / "style.css").read_text("utf-8")


def style_hash(text: str) -> str:
    """Return the source of a style sheet that stands in a page, as its policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("grpo_practice.see"),
        # By the name's ending would be the custom: a fragment without one would not be escaped.
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "line": line,
        "body": body,
        "reward": number,
        "share": share,
        "points": points,
        "usd": usd,
        "tokens": tokens,
        "seconds": seconds,
        "figure": figure,
        "when": when,
        "count": count,
        "sheet": Markup,  # of our own style sheet alone
    }
    return environment


def line(text: object, chars: int = LINE) -> str:
    """Return a stored text in one line of at most `chars` characters."""
    return brief(str(text), chars)


def body(text: object, chars: int = BODY) -> str:
    """Return a stored text with its line breaks, and how much of it was left out."""
    # Cut first: a foreign text may be megabytes.
    return visible(cut(str(text), chars))


def share(value: float | None) -> str:
    """Return a share in per cent: `61.2 %`; a dash for none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """Return a difference of shares in points, with its sign: `+8.1`; a dash for none."""
    return "-" if value is None else f"{100 * value:+.1f}".replace("-", "\u2212")


def usd(value: float | None) -> str:
    """Return money: `$0.42`, `$0.000120`; `unknown` for none."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if value >= 0.01 or value == 0 else f"${value:.6f}"


def tokens(value: int | None) -> str:
    """Return a number of tokens: `950`, `12.3k`, `1.23M`; `unknown` for none."""
    if value is None:
        return "unknown"
    if value < 10_000:
        return f"{value:,}"
    return f"{value / 1e3:.1f}k" if value < 999_950 else f"{value / 1e6:.2f}M"


def figure(value: float | None) -> str:
    """Return a number of any size: `0.0123`, `1e-05`; a dash for none."""
    return "-" if value is None else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """Return a duration: `4.2 s`, `3 min 10 s`; a dash for none, and for one without an end."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60} min"


def when(stored: str | None) -> str:
    """Return a stored time to the minute: `2026-11-22 14:03 UTC`; a dash for none."""
    return f"{stored[:10]} {stored[11:16]} UTC" if stored else "-"
