"""Pictures in the README, and the files of the report that they were made from."""

import hashlib
import json
from importlib.resources import files
from pathlib import Path

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MADE_OF = PICTURES / "made_of.json"
SCHEMES = ("light", "dark")
PARTS = ("report", "questions")
"""Parts of the report of which there is a picture."""
TRAINED = PICTURES / "training.json"
"""What `make real-train` wrote to `rewards.json`; the picture of the training is made of it."""
SOURCES = (
    *("charts.py", "templates/base.html", "templates/charts.html", "templates/report.html"),
    *("templates/report_run.html", "templates/run_parts.html", "templates/style.css"),
    *("training.py", "templates/training.html"),
)
"""Files in `viewer/` that decide how the pictures look."""


def present() -> dict[str, str]:
    """Return each file with the hash of what stands in it."""
    room = files("grpo_practice.viewer")
    return {name: hashlib.sha256(room.joinpath(name).read_bytes()).hexdigest() for name in SOURCES}


def recorded() -> dict[str, str]:
    """Return what `present` was when the pictures were made."""
    found: dict[str, str] = json.loads(MADE_OF.read_text("utf-8"))
    return found
