"""Composition of one config from several files: `defaults:` lists, deep merging, `--set key=value`.

A file is composed at the position of its include: `/agents/x@agent` in a file that is included
`@evaluation` becomes `evaluation.agent`. `# @package` headers therefore have no effect.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from grpo_practice.config.reading.interpolate import variables
from grpo_practice.config.reading.problems import dotted
from grpo_practice.config.reading.yaml_reader import (
    Position,
    Tree,
    parse_value,
    plain,
    read_yaml,
)
from grpo_practice.config.redact import leaves, redact
from grpo_practice.config.schema.base import check_name
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import REDACTED

MAX_FILES_DEEP = 16
CONFIGS = "configs"
"""Name of a project's config folder."""
_ENTRY = re.compile(r"/(?P<path>[^@\s]+)@(?P<package>\w[\w-]*(?:\.\w[\w-]*)*)")
_KEY = re.compile(r"[^\s.=]+(?:\.[^\s.=]+)*")


def packaged_configs() -> Path:
    """Return the folder of built-in configs, in the installed package or in a source checkout."""
    inside = Path(str(files("grpo_practice"))) / "configs"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[4] / "configs"


def is_file(path: Path) -> bool:
    """Return whether the file exists; False also for a path that no file can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def compose(path: Path, *, foreign: bool = False) -> Tree:
    """Read the file with everything its `defaults:` include, without filling in variables.

    Only files in the project's own folders can be included: see `_folders`. A `foreign` file is an
    agent's file that may come from a stranger: it can include only files from a configs folder, not
    other files next to it.

    Raises:
        ConfigError: A file is missing or unusable, an entry has an unsupported form, or a secret is
            only the placeholder for a hidden secret.
    """
    tree = _compose(path, foreign, ())
    refuse_hidden(tree, str(path))
    return tree


def refuse_hidden(tree: Tree, name: str) -> None:
    """Raise ConfigError if a secret is the placeholder `***`.

    Otherwise, a key from the environment would be sent in place of the hidden one.
    """
    for key, value in leaves(tree.data):
        if value == REDACTED and redact("text", key) == REDACTED:
            place = tree.place(key) or Position(name)
            raise ConfigError(
                f"{place.shown}: {dotted(key)} is {REDACTED}, a placeholder for a hidden secret",
                hint="write ${oc.env:NAME} with the variable that holds it, or remove the line",
            )


def _compose(path: Path, foreign: bool, stack: tuple[Path, ...]) -> Tree:
    # Resolve symlinks first, so that they cannot hide a cycle of includes.
    here = path.resolve()
    if here in stack:
        chain = " -> ".join(str(p) for p in (*stack[stack.index(here) :], here))
        raise ConfigError(f"{path}: defaults include each other: {chain}")
    if len(stack) >= MAX_FILES_DEEP:
        raise ConfigError(f"{path}: defaults are nested more than {MAX_FILES_DEEP} deep")
    own = read_yaml(path)
    entries = own.data.pop("defaults", None)
    # A third-party file must not redirect the API key of an included file to its own URL.
    combine = lay_over if foreign else merge
    out, folders = Tree({}), _folders(path, foreign)
    for entry, place in _entries(entries, own, path):
        if entry == "_self_":
            out = combine(out, own)
            continue
        found = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
        # Dot-folders hold settings and keys of other programs.
        if found is None or any(part.startswith(".") for part in found["path"].split("/")):
            raise ConfigError(
                f"{place.shown}: the defaults entry {entry!r} is not supported",
                hint="use `_self_` or `/path/of/file@key.it.goes.under`",
            )
        file = _find(found["path"], folders, place)
        included = _compose(file, foreign, (*stack, here))
        out = combine(out, nest(included, found["package"].split(".")))
    return out


def _entries(entries: Any, own: Tree, path: Path) -> Iterator[tuple[Any, Position]]:
    """Yield the entries in order, with `_self_` last if it is not listed."""
    if entries is not None and not isinstance(entries, list):
        raise ConfigError(f"{path}: defaults should be a list")
    listed = entries or []
    for i, entry in enumerate(listed):
        yield entry, own.place(("defaults", i)) or Position(str(path))
    if listed.count("_self_") > 1:
        raise ConfigError(f"{path}: `_self_` appears twice in defaults")
    if "_self_" not in listed:
        yield "_self_", Position(str(path))


def _folders(including: Path, foreign: bool) -> list[tuple[Path, Path]]:
    """Return the folders a file may include from, nearest first, each with its outermost folder.

    These are the file's parent folders up to the nearest folder called `configs`; if there is none,
    the parents up to the working folder; otherwise only the file's own folder. The project's
    `configs` folder and the built-in one come last. A working folder that is or contains the user's
    home is not a project.
    """
    parents = including.resolve().parents
    configs = [folder for folder in parents if folder.name == CONFIGS]
    here = Path.cwd()
    is_project = here in parents and not Path("~").expanduser().resolve().is_relative_to(here)
    outermost = configs[0] if configs else here if is_project else parents[0]
    own = [] if foreign and not configs else [f for f in parents if f.is_relative_to(outermost)]
    # A config elsewhere does not belong to the working folder, which may be a stranger's.
    at_home = foreign or here in parents or packaged_configs() in parents
    project = here if at_home else outermost.parent if configs else outermost
    shared = [(folder, folder.resolve()) for folder in (project / CONFIGS, packaged_configs())]
    return list(dict.fromkeys([*((folder, outermost) for folder in own), *shared]))


def _find(name: str, folders: Sequence[tuple[Path, Path]], place: Position) -> Path:
    """Return the file `/name` from the first folder that has it.

    A link to a file outside the outermost folder is refused.
    """
    for folder, outermost in folders:
        for suffix in (".yaml", ".yml"):
            candidate = folder / f"{name}{suffix}"
            if not is_file(candidate):
                continue
            if not candidate.resolve().is_relative_to(outermost):
                raise ConfigError(
                    f"{place.shown}: {candidate} is a link to a file outside {outermost}",
                    hint="copy the file there",
                )
            return candidate
    looked = ", ".join(str(folder) for folder, _ in folders)
    raise ConfigError(
        f"{place.shown}: there is no file /{name}.yaml",
        hint=f"looked in {looked}; put it into a folder called {CONFIGS}",
    )


def merge(under: Tree, over: Tree) -> Tree:
    """Merge both trees deeply; if both have a key, the second tree wins."""
    return Tree(_merge(under.data, over.data), {**under.places, **over.places})


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(under)
    for key, value in over.items():
        below = out.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merge(below, value)
        out[key] = value
    return out


def lay_over(under: Tree, over: Tree) -> Tree:
    """Merge both trees; a URL from `over` does not inherit the API key of the URL it replaces."""
    return merge(Tree(_keyless(under.data, over.data), under.places), over)


def _keyless(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(under)
    if "base_url" in over and over["base_url"] != under.get("base_url"):
        # Never send a key to any address except the one it was written for.
        out.pop("api_key", None)
    for name, inner in over.items():
        if isinstance(inner, dict) and isinstance(out.get(name), dict):
            out[name] = _keyless(out[name], inner)
    return out


def nest(tree: Tree, package: Sequence[str]) -> Tree:
    """Put the tree under these keys."""
    data = tree.data
    for name in reversed(package):
        data = {name: data}
    return Tree(data, {(*package, *key): place for key, place in tree.places.items()})


Override = str | tuple[str, Any]
"""`KEY=VALUE` as passed to `--set`, or a dotted key with its typed value."""


def override(tree: Tree, overrides: Sequence[Override], *, strip: str = "") -> Tree:
    """Set each `a.b=c` in the tree, in order; values are parsed as YAML scalars.

    A value in brackets, braces or quotes is parsed as YAML. `strip` is a first key that the
    override may omit. Setting `verify` replaces `verify_filename` and `verify_func_name`. Setting a
    URL removes the previous URL's API key unless a key is set too.

    Raises:
        ConfigError: An override is malformed, or a part of its key has a scalar value.
    """
    pairs = [_parsed(o) if isinstance(o, str) else o for o in overrides]
    # Apply URLs first, because changing a URL drops the API key, but not a key that a later flag
    # sets.
    for name, value in sorted(pairs, key=lambda pair: not pair[0].endswith(".base_url")):
        key, flag = tuple(name.split(".")), f"--set {name}"
        if name == "exp_id" and isinstance(value, str) and not variables(value):
            check_name(value, "an experiment")  # here, because an evaluation takes over the name
        refuse_hidden(nest(Tree({key[-1]: value}), key[:-1]), flag)
        if strip and key[0] == strip and len(key) > 1:
            key = key[1:]
        tree = _set(tree, key, value, flag)
    return tree


def _parsed(text: str) -> tuple[str, Any]:
    """Return the key and the value of `KEY=VALUE`."""
    name, equals, raw = text.partition("=")
    if not equals or not _KEY.fullmatch(name):
        raise ConfigError(f"--set {name} is not of the form key=value", hint="--set a.b=c")
    return name, parse_value(raw, f"--set {name}") if raw[:1] in tuple("[{'\"") else plain(raw)


def _set(tree: Tree, key: tuple[str, ...], value: Any, flag: str) -> Tree:
    # Setting a key below a single value would silently drop that value.
    for depth in range(1, len(key)):
        above = tree.data
        for part in key[:depth]:
            above = above.get(part, {})
            if above is None:
                above = {}
            if not isinstance(above, dict):
                raise ConfigError(
                    f"{flag}: {dotted(key[:depth])} is a single value, so it has no keys"
                )
    out = lay_over(tree, nest(Tree({key[-1]: value}, {key[-1:]: Position(flag)}), key[:-1]))
    if key[-1] == "verify":
        section = out.data
        for part in key[:-1]:
            section = section[part]
        section.pop("verify_filename", None)
        section.pop("verify_func_name", None)
        section["verify"] = value
    return out
