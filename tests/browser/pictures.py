"""Make the pictures of README and docs: `make pictures`. All but the training are simulated."""

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grpo_practice import Workspace
from tests.browser.browser import WIDE, Scheme, browsing, file_url
from tests.browser.made_of import MADE_OF, PICTURES, present
from tests.browser.training_page import training_page
from tests.pictures_terminal import terminal_svg

SCALE = 2
MOST_BYTES = 200_000
COLOURS = 64
ROWS = 14
"""Number of questions in the picture of questions."""


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        folder, report = Path(name) / "demo", Path(name) / "report.html"
        training = Path(name) / "training.html"
        training.write_text(training_page(), "utf-8")
        command = [sys.executable, "-m", "grpo_practice", "demo", "--keep", str(folder)]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        Workspace(folder / "grpo-practice.db").report("demo", output=report)
        schemes: tuple[Scheme, ...] = ("light", "dark")
        for scheme in schemes:
            await _show(file_url(report), scheme)
            async with browsing(file_url(training), scheme=scheme, scale=SCALE) as window:
                await window.look(file_url(training))
                picture = await window.page.locator("main").screenshot()
            (PICTURES / f"training-{scheme}.png").write_bytes(_small(picture))
            (PICTURES / f"terminal-{scheme}.svg").write_text(terminal_svg(scheme), "utf-8")
    MADE_OF.write_text(json.dumps(present(), indent=2) + "\n", "utf-8")


async def _show(url: str, scheme: Scheme) -> None:
    async with browsing(url, scheme=scheme, scale=SCALE) as window:
        await window.look(url)

        async def top(place: str) -> float:
            box = await window.page.locator(place).bounding_box()
            assert box is not None
            return float(box["y"])

        experiences, questions = [
            await top(f"[id='run-0-{sign}']") for sign in ("experiences", "questions")
        ]
        row = await top(f"[id='run-0-questions'] ~ .box >> nth=0 >> tbody tr >> nth={ROWS}")
        for name, y, end in (("report", 0, experiences), ("questions", questions, row + 16)):
            clip: Any = {"x": 0, "y": y, "width": WIDE, "height": end - y - 16}
            picture = await window.page.screenshot(clip=clip, full_page=True)
            (PICTURES / f"{name}-{scheme}.png").write_bytes(_small(picture))


def _small(picture: bytes) -> bytes:
    from PIL import Image

    small = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(
        small, "PNG", optimize=True
    )
    assert small.tell() <= MOST_BYTES, f"a picture has {small.tell():,} bytes"
    return small.getvalue()


if __name__ == "__main__":
    asyncio.run(main())
