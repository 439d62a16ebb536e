"""Record the user's decisions to trust other people's files and folders, and report them all."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from grpo_practice.config.reading.compose import compose
from grpo_practice.config.trust.word import OWN, Trust, stored_digest, text_digest, user_trust
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import DATABASE
from grpo_practice.core.text import count
from grpo_practice.reports.base import Report
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from grpo_practice.store.queries.runs import StoredConfig


@dataclass(frozen=True, slots=True, repr=False)
class TrustReport(Report):
    """All stored decisions by the user to trust other people's files and hosts."""

    schema: ClassVar = "grpo-practice.trust/1"

    file: Path | None
    """File that stores the decisions; None if the user has no home directory."""
    trusted: Sequence[Mapping[str, str]]
    """Trusted folders, configs, and hosts that may receive a key; oldest first."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each trusted folder, file and host."""
        kinds = ("folder", "of", "host")
        folders, files, hosts = ([r for r in self.trusted if kind in r] for kind in kinds)
        # A file has one record per version of its text and per folder that uses it.
        texts = Counter(record["of"] for record in files)
        own = texts.pop(OWN, 0)
        rows = [("folder", record["folder"]) for record in folders]
        rows += [("file", file) for file in texts]
        rows += [("host", f"{record['host']} for {record['variable']}") for record in hosts]
        rows += [("own", f"{count(own, 'config')} of your own runs and exports")] if own else []
        return [(str(self.file or "nothing is remembered"),), *rows]


def trusts(known: Trust, stored: StoredConfig, database: Path) -> bool:
    """Return whether the user trusts the settings of a stored run."""
    digest = stored_digest(stored.text, Path(stored.base_dir))
    return known.text(digest, database, imported=stored.imported)


def trust(
    paths: Sequence[Path], hosts: Sequence[str] = (), keys: Sequence[str] = ()
) -> TrustReport:
    """Remember that the user trusts these files and folders; see `Workspace.trust`."""
    known = user_trust(os.environ)
    if bool(hosts) != bool(keys):
        raise ConfigError(
            "name both a host and a key, because a host is trusted only with a certain key",
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
            is_database = file.read(len(DATABASE)) == DATABASE
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    if not is_database:
        return [text_digest(compose(path, foreign=True).data, Path.cwd())]
    with Store(path) as store:
        stored = [store.read(runs.config, run.name) for run in store.read(runs.all_runs)]
    return [stored_digest(one.text, Path(one.base_dir)) for one in stored if one is not None]
