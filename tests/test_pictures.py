"""The pictures of README and docs exist, are small, and show report and terminal of today."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.browser.made_of import PARTS, PICTURES, SCHEMES, TRAINED, present, recorded
from tests.browser.training_page import training_page
from tests.pictures_terminal import terminal_svg

REMEDY = "the report looks otherwise by now: `make pictures`, look at them, and commit them"


def test_the_pictures_are_made_of_the_report_as_it_is() -> None:
    assert recorded() == present(), REMEDY


def test_a_page_shows_each_picture_in_both_schemes_and_says_that_it_is_simulated() -> None:
    docs = PICTURES.parent
    pages = (docs.parent / "README.md", docs / "running.md", docs / "train.md")
    text = "".join(page.read_text("utf-8") for page in pages)
    shown = set(re.findall(r"\bpictures/([\w-]+\.(?:png|svg))", text))
    wanted = {f"{part}-{scheme}.png" for part in (*PARTS, "training") for scheme in SCHEMES}
    assert shown == wanted | {f"terminal-{scheme}.svg" for scheme in SCHEMES}
    for name in shown:
        assert (PICTURES / name).stat().st_size <= 200_000
    assert {path.name for path in PICTURES.iterdir()} == shown | {"made_of.json", TRAINED.name}
    for picture in re.findall(r"<picture>.*?</picture>", text, re.DOTALL):
        real = "pictures/training-" in picture
        assert re.search(r'alt="[^"]*[Ss]imulated', picture) or real


def test_the_training_is_drawn_with_a_point_for_each_step() -> None:
    page = training_page()
    charts = page.split("<figure>")[1:]
    assert [chart.count('<line class="interval"') for chart in charts] == [23, 23]
    assert "Rewards by a coin: mean of 3 seeds" in charts[1]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_terminal_ends_as_in_the_picture(scheme: str) -> None:
    def text(svg: str) -> str:
        return "".join(ElementTree.fromstring(svg).itertext())

    stored = Path(PICTURES / f"terminal-{scheme}.svg").read_text("utf-8")
    assert text(stored) == text(terminal_svg("dark" if scheme == "dark" else "light")), REMEDY
