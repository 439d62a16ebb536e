"""Put what the browser tests need below `.programs/browser`: `python -m tests.browser.install`.

The browser is the system's. axe-core (MPL-2.0) is used by tests alone and is not shipped.
"""

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(".programs/browser")
AXE = FOLDER / "axe.min.js"
PACKAGES = {"playwright": "playwright>=1.55,<2", "PIL": "pillow>=11,<13"}
"""Module → package; the second makes pictures small."""
AXE_CORE = "axe-core@4.14.1"
AXE_SHA512 = (
    "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b73"
    "4f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Programs of which one has to be installed."""


def main() -> None:
    lacking = [package for name, package in PACKAGES.items() if not (FOLDER / name).is_dir()]
    if lacking:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", FOLDER, *lacking], check=True)
    if not AXE.is_file():
        AXE.write_bytes(_axe())


def _axe() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        command = ["npm", "pack", "--silent", "--pack-destination", name, AXE_CORE]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(name).glob("*.tgz")
        content = packed.read_bytes()
    if hashlib.sha512(content).hexdigest() != AXE_SHA512:
        raise SystemExit(f"{AXE_CORE} is not the one that was tried: its sha512 is another")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read()


if __name__ == "__main__":
    main()
