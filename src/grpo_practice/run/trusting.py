"""Record the user's decision to trust files and folders by other people."""

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from grpo_practice.config.reading.compose import compose
from grpo_practice.config.trust.word import stored_digest, text_digest, user_trust
from grpo_practice.core.errors import ConfigError
from grpo_practice.reports.trust_report import TrustReport
from grpo_practice.store import Store
from grpo_practice.store.queries import runs

_DATABASE = b"SQLite format 3\0"


def trust(
    paths: Sequence[Path], hosts: Sequence[str] = (), keys: Sequence[str] = ()
) -> TrustReport:
    """Remember that the user trusts these files and folders; see `Workspace.trust`."""
    known = user_trust(os.environ)
    if bool(hosts) != bool(keys):
        raise ConfigError(
            "a host is trusted with a key, but only one of the two is named",
            hint="grpo-practice trust --host api.example.com --key UTU_LLM_API_KEY",
        )
    if (paths or hosts) and known.kept is None:
        raise ConfigError(
            "there is no folder to remember it in: HOME is not set, or is relative",
            hint="set XDG_CONFIG_HOME to a folder",
        )
    for path in paths:
        if path.is_dir():
            known.remember_folder(path)
            continue
        known.remember(_digests(path), path)
    for host, key in product(hosts, keys):
        known.remember_host(host, key)
    return TrustReport(known.kept, known.all())


def _digests(path: Path) -> list[str]:
    """Return the hashes of a file's configs: an agent's, or one for each run of a database."""
    if path.exists() and not path.is_file():  # opening a pipe may block forever
        raise ConfigError(
            f"{path} is not a regular file", hint="name an agent file, a database or a folder"
        )
    try:
        with path.open("rb") as file:
            is_database = file.read(len(_DATABASE)) == _DATABASE
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    if not is_database:
        return [text_digest(compose(path, foreign=True).data, Path.cwd())]
    with Store(path) as store:
        stored = [store.read(runs.config, run.name) for run in store.read(runs.all_runs)]
    return [stored_digest(one.text, Path(one.base_dir)) for one in stored if one is not None]
