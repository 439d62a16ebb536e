"""Export of trained weights: an adapter or a whole model, and the agent that uses it."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from grpo_practice import __version__
from grpo_practice.config.reading.interpolate import escaped
from grpo_practice.config.reading.yaml_reader import parse_yaml
from grpo_practice.config.yaml_document import to_document
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import plain_file
from grpo_practice.core.foreign_text import one_line
from grpo_practice.reports.training import TrainedExport
from grpo_practice.run.agent_file import endpoint_written, model_as_written, without_secrets
from grpo_practice.run.weights import (
    ABOUT,
    AGENT,
    SCHEMA,
    check_no_code,
    folder_size,
    model_folder,
    weights_sha,
)
from grpo_practice.store import Store
from grpo_practice.store.identity import MODEL_SHA
from grpo_practice.store.queries import references, runs
from grpo_practice.train.checkpoints import TrainedWeights, trained_weights
from grpo_practice.train.checks import check_installed
from grpo_practice.train.loading import keep_quiet, load_tokenizer

_ASIDE = ".making"
_INSTRUCTIONS = "evaluation.agent.agent.instructions"
# Named instead of `*`, because the optimiser state is twice as large as the weights and a pickle
# may run code.
_OF_MODEL = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
_NOT_OF_MODEL = frozenset({"trainer_state.json"})


def export_trained(
    store: Store, run: str, step: str, target: Path, *, whole: bool, force: bool
) -> TrainedExport:
    """Write the weights, and an agent file that uses them, to a folder.

    `whole` merges the adapter into the base model and writes the result. A run that trained all
    weights has no adapter and always exports a whole model.

    Raises:
        ConfigError: The checkpoint does not exist or has changed, the base model is a different
            one, or the folder cannot be written.
    """
    found = trained_weights(store, run, step)
    saved = found.checked()
    _check_free(target, force=force)
    record = store.read(references.record, found.branch.id)
    base = _base(record.config_text)
    is_adapter = (saved / "adapter_config.json").is_file()
    name = "model" if whole or not is_adapter else "adapter"
    # Write next to the target and rename at the end, so that a failure leaves no half-written
    # folder and keeps the earlier export.
    aside = target.with_name(f"{target.name}{_ASIDE}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        if whole and is_adapter:
            _merge(store, found, record.identity, aside / name)
        else:
            _copy(saved, aside / name)
            if not is_adapter:
                with suppress(ConfigError):  # without the extra, keep the larger float32 weights
                    check_installed()
                    to_own_precision(aside / name)
        weights = target.absolute() / name
        model = str(weights) if name == "model" else f"{found.run.exp_id}-trained"
        serve = _serve(weights, model, base, whole=name == "model")
        about = _about(found, record.identity, base)
        (aside / ABOUT).write_text(json.dumps(about, indent=2) + "\n", "utf-8")
        agent = _agent(record.identity, record.config_text, model, [*_facts(found, base), serve])
        (aside / AGENT).write_text(agent, "utf-8")
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
    except OSError as e:
        raise ConfigError(f"cannot write {target}: {e.strerror or e}") from e
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return TrainedExport(
        run=found.run.name,
        step=found.checkpoint.step,
        sha256=found.checkpoint.sha256.hex(),
        path=target,
        agent=target / AGENT,
        weights=target / name,
        bytes=folder_size(target / name),
        model=model,
        serve=serve,
        library=_practised(store, found.run.exp_id),
    )


def _check_free(target: Path, *, force: bool) -> None:
    """Raise ConfigError unless the path is free or is a folder written by an earlier export."""
    if not os.path.lexists(target):
        return
    ours = target.is_dir() and not target.is_symlink() and (target / ABOUT).is_file()
    if not (ours and force):
        why = "already exists" if ours else "exists, and was not written by this command"
        hint = "--force replaces it" if ours else "name another folder with -o"
        raise ConfigError(f"{target} {why}", hint=hint)


def _base(config_text: str) -> tuple[str, str | None]:
    """Return the base model's name and revision as configured."""
    train = parse_yaml(config_text, "the stored config").at("train").data
    return str(train.get("model", "")), train.get("revision")


def _merge(store: Store, found: TrainedWeights, identity: Mapping[str, Any], target: Path) -> None:
    check_installed()
    config = store.read(runs.config, found.run.name)
    assert config is not None, "its branch has just been read"
    name, revision = _base(config.text)
    base = model_folder(name, revision, Path(config.base_dir))
    check_no_code(base)
    if weights_sha(base).hex() != identity.get(MODEL_SHA):
        raise ConfigError(
            f"{base} does not contain the weights that {found.run.name} was trained from",
            hint="restore them, or export the adapter without --merge",
        )
    # Merging takes minutes, so fail before it starts.
    size = folder_size(base)
    free = shutil.disk_usage(target.parent).free
    if size > free:
        raise ConfigError(
            f"{size / 1e6:,.0f} MB of whole weights do not fit on the disk of {target.parent},"
            f" where {free / 1e6:,.0f} MB are free",
            hint="name a folder on another disk with -o, or leave out --merge",
        )
    merge(base, found.checked(), target)


def _copy(folder: Path, target: Path) -> None:
    """Copy a model's files, except files that only training needs."""
    target.mkdir()
    for pattern in _OF_MODEL:
        for path in folder.glob(pattern):
            if path.name not in _NOT_OF_MODEL and plain_file(path) is not None:
                shutil.copyfile(path, target / path.name)


def _serve(weights: Path, model: str, base: tuple[str, str | None], *, whole: bool) -> str:
    if whole:
        return f"transformers serve {quote(str(weights))}"
    return f"vllm serve {quote(base[0])} --enable-lora --lora-modules {quote(f'{model}={weights}')}"


def _facts(found: TrainedWeights, base: tuple[str, str | None]) -> list[str]:
    at = f"{base[0]} {base[1]}" if base[1] else base[0]
    return [
        f"exported by grpo-practice {__version__} from run {found.run.name}"
        f" (branch {found.branch.id}), after step {found.checkpoint.step}",
        f"trained from {at}; sha256 of the trained weights {found.checkpoint.sha256.hex()}",
        "an endpoint has to serve them, for instance:",
    ]


def _about(
    found: TrainedWeights, identity: Mapping[str, Any], base: tuple[str, str | None]
) -> dict[str, Any]:
    settings = {k: v for k, v in identity.items() if k.startswith("train.") and k != MODEL_SHA}
    return {
        "schema": SCHEMA,
        "run": found.run.name,
        "branch": found.branch.id,
        "step": found.checkpoint.step,
        "sha256": found.checkpoint.sha256.hex(),
        "base": {"model": base[0], "revision": base[1], "sha256": identity.get(MODEL_SHA)},
        "selection": found.selection,
        "settings": settings,
    }


def _agent(identity: Mapping[str, Any], config_text: str, model: str, facts: list[str]) -> str:
    """Return the agent file, with the instructions used in training and the name of the weights."""
    written = model_as_written(config_text)
    settings = without_secrets(dict(written.at("model_settings").data), "model_settings", [])
    document = {
        "type": "simple",
        "model": {
            "model_provider": {
                "type": "chat.completions",
                # A loader would expand a variable in the name of a folder.
                "model": model.replace("${", r"\${"),
                **endpoint_written(written.at("model_provider").data),
            },
            **({"model_settings": settings} if settings else {}),
        },
        "agent": {"instructions": escaped(str(identity.get(_INSTRUCTIONS, "")))},
    }
    return "".join(f"# {one_line(fact)}\n" for fact in facts) + to_document(document)


def _practised(store: Store, exp_id: str) -> str | None:
    run = store.read(runs.find, exp_id)
    return exp_id if run is not None and run.kind == "practice" and run.steps_closed else None


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write the base model with the adapter merged in, in the base model's precision."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    keep_quiet()
    model = AutoModelForCausalLM.from_pretrained(
        base, dtype="auto", trust_remote_code=False, local_files_only=True, use_safetensors=True
    )
    merged = PeftModel.from_pretrained(model, adapter, is_trainable=False).merge_and_unload()
    merged.save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)


HALF = ("bfloat16", "float16")
"""Half-precision formats of base models whose weights are trained in single precision."""


def to_own_precision(folder: Path) -> None:
    """Convert weights to the precision specified in their `config.json`, if it is a half precision.

    Training leaves weights in single precision, at twice the size of the base model.
    """
    wanted = json.loads((folder / "config.json").read_text("utf-8")).get("dtype")
    if wanted not in HALF:
        return
    import torch
    from safetensors.torch import load_file, save_file

    size = 0
    for path in folder.glob("*.safetensors"):
        tensors = {
            name: tensor.to(getattr(torch, wanted)) if tensor.is_floating_point() else tensor
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, metadata={"format": "pt"})
        size += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    for path in folder.glob("*.safetensors.index.json"):
        index = json.loads(path.read_text("utf-8"))
        index["metadata"] = {**index.get("metadata", {}), "total_size": size}
        path.write_text(json.dumps(index, indent=2), "utf-8")
