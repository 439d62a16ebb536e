"""The rewards of the trainings in docs/train.md, drawn as report and viewer draw a training."""

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from grpo_practice.viewer.pages import _environment, style
from grpo_practice.viewer.training import HEIGHT, Chart, Stretch, charts_of
from tests.browser.made_of import TRAINED

GIVERS = {"learnt": "the verify function", "coin": "a coin"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><style>{{ style|sheet }}</style></head><body>
<main style="width: 48rem; margin: 0; padding: .5rem 1rem">{% from "training.html" import chart %}
{% for one in charts %}{{ chart(one, one.id, height) }}{% endfor %}</main></body></html>
"""


def training_page() -> str:
    """Return a page with a chart for each kind of reward; a mark is the mean over all seeds."""
    trained: dict[str, list[list[float]]] = json.loads(TRAINED.read_text("utf-8"))
    charts = [_chart(kind, trained[kind]) for kind in GIVERS]
    page = _environment().from_string(_PAGE)
    return page.render(charts=charts, height=HEIGHT, style=style())


def _chart(kind: str, seeds: Sequence[Sequence[float]]) -> Chart:
    found = [_step(step, fmean(of)) for step, of in enumerate(zip(*seeds, strict=True))]
    title = f"Rewards by {GIVERS[kind]}: mean of {len(seeds)} seeds at each step"
    return replace(charts_of(found)[0], id=kind, title=title)


def _step(step: int, reward: float) -> Stretch:
    return Stretch(
        first=step,
        last=step,
        reward=reward,
        informative=0,
        groups=0,
        uniform=None,
        loss=None,
        kl=None,
        entropy=None,
        grad_norm=None,
        clipped=None,
        learning_rate=None,
        tokens=0,
        seconds=0.0,
        selection=None,
    )
