"""The picture of the terminal is made of a real run; test_pictures.py: it is the same each time."""

import re
from xml.etree import ElementTree

import pytest

from tests.pictures_terminal import COMMAND, terminal_svg


@pytest.mark.long
@pytest.mark.slow
def test_the_picture_says_that_it_is_simulated_and_is_another_in_each_scheme() -> None:
    picture = terminal_svg("dark")
    assert picture != terminal_svg("light")
    shown = re.sub(r"\s+", " ", "".join(ElementTree.fromstring(picture).itertext()))
    text = shown.replace("\xa0", " ")
    for part in (f"$ {COMMAND}", "(simulated: says nothing about a real model)", "step 3 closed"):
        assert part in text
    assert "next: grpo-practice export-agent" in text
    assert re.search(r"Better +scores +0", text)
    # Nothing is loaded from elsewhere, and no day is named.
    assert not re.search(r"url\(['\"]?http|href=|@import|@font-face", picture)
    assert not re.search(r"20\d\d-\d\d-\d\d", text)
