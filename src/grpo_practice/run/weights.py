"""Weights on disk: their hash and size, and a check that the model needs no custom code."""

import hashlib
import json
from pathlib import Path

from grpo_practice.core.errors import ConfigError

SCHEMA = "grpo-practice.trained/1"
AGENT = "agent.yaml"
"""Agent file in a folder of exported weights."""
ABOUT = "training.json"
"""File that records the origin of exported weights and marks the folder as an export."""


def agent_name(file: Path) -> str:
    """Return the name of the agent in a file: its stem, or its folder if that is an export.

    All exports of weights call the file `agent.yaml`, so their folders tell the agents apart.
    """
    exported = file.name == AGENT and (file.parent / ABOUT).is_file()
    return file.absolute().parent.name if exported else file.stem


def weights_sha(folder: Path) -> bytes:
    """Hash the names and contents of a folder's `*.safetensors`. Shape: [32] bytes.

    Raises:
        ConfigError: The folder contains no such file.
    """
    total = hashlib.sha256()
    for path in check_weights(folder):
        with path.open("rb") as file:
            sha = hashlib.file_digest(file, "sha256").digest()
        total.update(path.name.encode() + b"\0" + sha)
    return total.digest()


def check_weights(folder: Path) -> list[Path]:
    """Return the weight files of a folder; raise ConfigError if there are no such files."""
    # In the order of names, since a file system lists a folder in any order, and this is hashed.
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if not files:
        raise ConfigError(
            f"{folder} has no weights (*.safetensors)",
            hint="pickled weights are never loaded, so convert them or name another model",
        )
    return files


def weights_size(folder: Path) -> int:
    """Return the total size in bytes of a folder's `*.safetensors`."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def folder_size(folder: Path) -> int:
    """Return the total size in bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check_no_code(folder: Path) -> None:
    """Raise ConfigError if loading the model would run Python code from its folder."""
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            found = json.loads(path.read_text("utf-8"))
        except ValueError as e:
            raise ConfigError(f"{path} is not valid JSON: {e}") from e
        if isinstance(found, dict) and "auto_map" in found:
            raise ConfigError(
                f"{path} refers to Python code shipped with the model (auto_map), which is never"
                " run",
                hint="choose a model that transformers supports natively",
            )


def model_folder(model: str, revision: str | None, base_dir: Path) -> Path:
    """Return the folder of a base model: a local one, or else a download from the hub.

    Raises:
        ConfigError: The model does not exist, or the hub is unreachable.
    """
    return local_folder(model, base_dir) or _of_hub(model, revision)


def local_folder(model: str, base_dir: Path) -> Path | None:
    """Return the local folder of a base model; None if the name refers to the hub.

    Raises:
        ConfigError: The name refers to a folder that contains no model.
    """
    path = Path(model).expanduser()
    path = path if path.is_absolute() else base_dir / path
    if (path / "config.json").is_file():
        return path.resolve()
    # Such a name cannot be a repository on the hub, so report the folder instead of asking the hub.
    if path.is_dir() or model.startswith((".", "/", "~")):
        raise ConfigError(
            f"train.model {model}: the folder {path} has no config.json",
            hint="name a folder with config.json, *.safetensors and a tokenizer",
        )
    return None


def _of_hub(model: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja"]
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=wanted))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as e:
        raise ConfigError(
            f"train.model {model} is not a folder, and cannot be downloaded from the hub:"
            f" {type(e).__name__}",
            hint="name a folder with config.json and *.safetensors, or download it once while"
            " online",
        ) from e
