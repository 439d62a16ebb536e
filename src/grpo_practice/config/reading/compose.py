"""One config out of several files: the `defaults:` list, deep merging, `--set key=value`.

A file is composed where it stands: `/agents/x@agent` inside a file that is included
`@evaluation` lands in `evaluation.agent`. `# @package` headers therefore never matter.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from grpo_practice.config.reading.problems import dotted
from grpo_practice.config.reading.yaml_reader import (
    Position,
    Tree,
    parse_value,
    plain,
    read_yaml,
)
from grpo_practice.config.redact import leaves, redact
from grpo_practice.errors import ConfigError
from grpo_practice.redact import REDACTED

MAX_FILES_DEEP = 16
CONFIGS = "configs"
"""Name of a project's folder of configs."""
_ENTRY = re.compile(r"/(?P<path>[^@\s]+)@(?P<package>\w[\w-]*(?:\.\w[\w-]*)*)")
_KEY = re.compile(r"[^\s.=]+(?:\.[^\s.=]+)*")


def packaged_configs() -> Path:
    """Return the folder of shipped configs: in the package, or in a source checkout."""
    inside = Path(str(files("grpo_practice"))) / "configs"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[4] / "configs"


def is_file(path: Path) -> bool:
    """Return whether there is such a file; False also for a name that no file can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def compose(path: Path, *, foreign: bool = False) -> Tree:
    """Read the file with everything its `defaults:` include, uninterpolated.

    Only files of the project's own folders are included: see `_folders`. A `foreign` one is an
    agent's, which a stranger may have made: it includes configs alone, and nothing that only lies
    beside it.

    Raises:
        ConfigError: A file is missing or not usable, an entry has another form, or what stands
            for a hidden secret is given as one.
    """
    tree = _compose(path, foreign, ())
    refuse_hidden(tree, str(path))
    return tree


def refuse_hidden(tree: Tree, name: str) -> None:
    """Raise if a secret is what hides one: a key of the environment would be sent in its place."""
    for key, value in leaves(tree.data):
        if value == REDACTED and redact("text", key) == REDACTED:
            place = tree.place(key) or Position(name)
            raise ConfigError(
                f"{place.shown}: {dotted(key)} is {REDACTED}, which hides a secret and is none",
                hint="write ${oc.env:NAME} with the variable that holds it, or take the line out",
            )


def _compose(path: Path, foreign: bool, stack: tuple[Path, ...]) -> Tree:
    # Resolved, so that no link hides that files include each other.
    here = path.resolve()
    if here in stack:
        chain = " -> ".join(str(p) for p in (*stack[stack.index(here) :], here))
        raise ConfigError(f"{path}: defaults include each other: {chain}")
    if len(stack) >= MAX_FILES_DEEP:
        raise ConfigError(f"{path}: defaults are nested more than {MAX_FILES_DEEP} deep")
    own = read_yaml(path)
    entries = own.data.pop("defaults", None)
    # A key that a file of others includes does not go to a URL of its own.
    combine = lay_over if foreign else merge
    out, folders = Tree({}), _folders(path, foreign)
    for entry, place in _entries(entries, own, path):
        if entry == "_self_":
            out = combine(out, own)
            continue
        found = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
        # A dot-folder holds settings and keys of other programs.
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
    """Yield the entries in order, with `_self_` last when it is not among them."""
    if entries is not None and not isinstance(entries, list):
        raise ConfigError(f"{path}: defaults should be a list")
    listed = entries or []
    for i, entry in enumerate(listed):
        yield entry, own.place(("defaults", i)) or Position(str(path))
    if listed.count("_self_") > 1:
        raise ConfigError(f"{path}: `_self_` stands twice in defaults")
    if "_self_" not in listed:
        yield "_self_", Position(str(path))


def _folders(including: Path, foreign: bool) -> list[tuple[Path, Path]]:
    """List the folders that a file may include from, nearest first, each with its outermost one.

    They are the file's parents up to the nearest one called `configs`, else up to the working
    folder, else its own folder alone; then the `configs` of its project, and those that are
    shipped. A working folder that has the user's home in it, or is it, is no project's.
    """
    parents = including.resolve().parents
    configs = [folder for folder in parents if folder.name == CONFIGS]
    here = Path.cwd()
    is_project = here in parents and not Path("~").expanduser().resolve().is_relative_to(here)
    outermost = configs[0] if configs else here if is_project else parents[0]
    own = [] if foreign and not configs else [f for f in parents if f.is_relative_to(outermost)]
    # The working folder is not the project of a config from elsewhere, and may be a stranger's.
    project = here if foreign or here in parents else outermost.parent if configs else outermost
    shared = [(folder, folder.resolve()) for folder in (project / CONFIGS, packaged_configs())]
    return list(dict.fromkeys([*((folder, outermost) for folder in own), *shared]))


def _find(name: str, folders: Sequence[tuple[Path, Path]], place: Position) -> Path:
    """Find `/name` in the first folder that has it, as a file that lies in the outermost one."""
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
        f"{place.shown}: no file /{name}.yaml",
        hint=f"looked in {looked}; put it into a folder called {CONFIGS}",
    )


def merge(under: Tree, over: Tree) -> Tree:
    """Merge both trees deeply; where both have a key the second wins."""
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
    """Merge both trees; a URL that `over` gives does not inherit the key of the URL before."""
    return merge(Tree(_keyless(under.data, over.data), under.places), over)


def _keyless(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(under)
    if "base_url" in over and over["base_url"] != under.get("base_url"):
        # A key is never sent to another address than the one that it was given for.
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
"""`KEY=VALUE` as given to `--set`, or a dotted key and its typed value."""


def override(tree: Tree, overrides: Sequence[Override], *, strip: str = "") -> Tree:
    """Set each `a.b=c` in the tree, in order; values are read as YAML scalars.

    A value in brackets, braces or quotes is read as YAML. `strip` is a first key that may be left
    out or written. Setting `verify` replaces a `verify_filename` pair. A URL that is set takes the
    key of the one before it away, unless a key is set too.

    Raises:
        ConfigError: An override has another form, or goes through a value that has no keys.
    """
    pairs = [_parsed(o) if isinstance(o, str) else o for o in overrides]
    # URLs first: one that changes takes the key before it away, and so must not come after a key.
    for name, value in sorted(pairs, key=lambda pair: not pair[0].endswith(".base_url")):
        key, flag = tuple(name.split(".")), f"--set {name}"
        refuse_hidden(nest(Tree({key[-1]: value}), key[:-1]), flag)
        if strip and key[0] == strip and len(key) > 1:
            key = key[1:]
        tree = _set(tree, key, value, flag)
    return tree


def _parsed(text: str) -> tuple[str, Any]:
    """Return the key and the value of `KEY=VALUE`."""
    name, equals, raw = text.partition("=")
    if not equals or not _KEY.fullmatch(name):
        raise ConfigError(f"--set {name}: not of the form key=value", hint="--set a.b=c")
    return name, parse_value(raw, f"--set {name}") if raw[:1] in tuple("[{'\"") else plain(raw)


def _set(tree: Tree, key: tuple[str, ...], value: Any, flag: str) -> Tree:
    for depth in range(1, len(key)):
        above = tree.data
        for part in key[:depth]:
            above = above.get(part, {})
            if above is None:
                above = {}
            if not isinstance(above, dict):
                raise ConfigError(f"{flag}: {dotted(key[:depth])} is a single value, without keys")
    out = lay_over(tree, nest(Tree({key[-1]: value}, {key[-1:]: Position(flag)}), key[:-1]))
    if key[-1] == "verify":
        section = out.data
        for part in key[:-1]:
            section = section[part]
        section.pop("verify_filename", None)
        section.pop("verify_func_name", None)
        section["verify"] = value
    return out
