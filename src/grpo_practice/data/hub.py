"""A dataset on the Hugging Face Hub at one commit. Code in the dataset is never loaded."""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.redact import redactor

if TYPE_CHECKING:
    from huggingface_hub import HfApi, ResolvedRevision

README = "README.md"
MAX_README = 1 << 20
"""Maximum size in bytes of a README; a larger one is ignored."""

_REF = re.compile(
    r"hf://(?:datasets/)?(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<config>[^@]+))?(?:@(?P<split>.+))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Ref:
    """Reference to a dataset, or to one of its configs or splits."""

    repo: str
    """Repository in the form `owner/name`."""
    config: str | None = None
    split: str | None = None
    """Name of a split, or the path of one file."""


def parse_ref(text: str) -> Ref:
    """Parse `hf://owner/name[:config][@split]`; raise ConfigError if the text has another form."""
    match = _REF.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} does not have the form hf://owner/name[:config][@split]")
    return Ref(**match.groupdict())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Repository of a dataset at one commit."""

    repo: str
    sha: str
    sizes: Mapping[str, int]
    """Size in bytes of every file, by path."""
    readme: str
    """Text of the README; '' if there is no README."""
    reached: bool
    """Whether the hub answered; if False, the data came from the cache and a newer commit may
    exist.
    """
    revision: "ResolvedRevision" = field(repr=False)

    def fetch(self, path: str) -> Path:
        """Download a file into the shared Hugging Face cache, unless it is already cached.

        Raises:
            DataError: The hub does not serve the file.
        """
        from huggingface_hub import hf_hub_download

        _show_progress(sys.stderr.isatty())
        with _explained(self.repo, str(self.revision)):
            got = hf_hub_download(self.repo, path, repo_type="dataset", revision=self.revision)
        return Path(got)


def open_snapshot(repo: str, revision: str | None) -> Snapshot:
    """Look up the repository at a branch, tag or commit, or at its newest commit.

    `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` have their usual meanings. In offline
    mode, or if the hub is unreachable, the dataset must be in the cache.

    Raises:
        DataError: The hub does not serve the dataset, and the cache is incomplete.
        ConfigError: huggingface_hub is not installed.
    """
    api = _library()
    from huggingface_hub import get_cached_repo_tree

    _show_progress(False)
    with _explained(repo, revision or "main"):
        resolved, reached = _resolve(api, repo, revision)
        folder = api.snapshot_download(
            repo, repo_type="dataset", revision=resolved, allow_patterns=[README]
        )
        tree = get_cached_repo_tree(repo, repo_type="dataset", revision=resolved)
    card = Path(str(folder)) / README
    small = card.is_file() and card.stat().st_size <= MAX_README
    readme = card.read_text("utf-8", errors="replace") if small else ""
    sizes = {file.path: file.size for file in tree}
    return Snapshot(repo, resolved.resolved, sizes, readme, reached, resolved)


def _resolve(api: "HfApi", repo: str, revision: str | None) -> "tuple[ResolvedRevision, bool]":
    """Return the commit, from the cache if the hub is unreachable, and whether the hub answered."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        if not _COMMIT.fullmatch(revision or ""):
            api.dataset_info(repo, revision=revision)
        return api.resolve_revision(repo, repo_type="dataset", revision=revision), True
    except (HTTPError, OSError) as e:
        # A refusal is not an outage, so the cache must not hide a missing or gated dataset.
        if 400 <= _status(e) < 500:
            raise
        # Call this inside the except block, so that its error keeps the network error as context.
        return api.resolve_revision(
            repo, repo_type="dataset", revision=revision, local_files_only=True
        ), False


def _library() -> "HfApi":
    """Import the client library, silence its logging, and register its token for redaction."""
    # Set these before the import, which reads them once; the library would send usage data.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_UPDATE_CHECK", "1")
    try:
        from huggingface_hub import HfApi, get_token
        from huggingface_hub.utils import logging as library_logging
    except ImportError as e:
        hint = "pip install 'grpo-practice[hub]'"
        raise ConfigError("data download needs huggingface_hub and pyarrow", hint=hint) from e
    library_logging.set_verbosity(logging.ERROR)
    redactor.know({get_token() or ""})
    return HfApi(library_name="grpo-practice")


def _show_progress(shown: bool) -> None:
    """Turn the library's progress bars on or off, unless the environment already sets them."""
    from huggingface_hub import constants
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        disable_progress_bars,
        enable_progress_bars,
    )

    if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        (enable_progress_bars if shown else disable_progress_bars)()


@contextmanager
def _explained(repo: str, revision: str) -> Iterator[None]:
    """Convert the library's errors into ours, with a hint on what to do."""
    from huggingface_hub import errors
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except ImportError as e:  # the package that a SOCKS proxy in the environment requires
        hint = "set HTTPS_PROXY to an http:// proxy, and unset ALL_PROXY"
        raise DataError(f"hf://{repo}: {e}", hint=hint) from e
    except ValueError as e:
        raise DataError(f"hf://{repo}: {e}") from e
    except (
        HTTPError,
        OSError,
        errors.RevisionResolutionError,
        errors.CachedRepoTreeNotFoundError,
        errors.EntryNotFoundError,
    ) as e:
        raise _our_error(e, repo, revision) from e


def _our_error(error: Exception, repo: str, revision: str) -> DataError:
    from huggingface_hub import constants, errors

    name, token = f"hf://{repo}", "set HF_TOKEN to a token of an account that may read it"
    page = f"{constants.ENDPOINT}/datasets/{repo}"
    chain = list(_causes(error))
    status = next(filter(None, map(_status, chain)), 0)
    if any(isinstance(e, errors.GatedRepoError) for e in chain):
        return DataError(f"{name} is gated", hint=f"accept its terms at {page}, and {token}")
    if any(isinstance(e, errors.RepositoryNotFoundError) for e in chain):
        hint = f"see {page}; if it is private, {token}"
        return DataError(f"{name} does not exist, or is private", hint=hint)
    if any(isinstance(e, errors.RevisionNotFoundError) for e in chain):
        return DataError(f"{name} has no revision {revision!r}", hint=f"see {page}/commits")
    if status == 401:
        return DataError("the hub refuses the token", hint="set HF_TOKEN to a valid one, or unset")
    if status == 429:
        hint = "wait a few minutes; with HF_TOKEN set, the limits are higher"
        return DataError(f"{name}: the hub reports too many requests", hint=hint)
    if constants.is_offline_mode():
        return DataError(
            f"{name} at {revision!r} is missing from the cache or incomplete there, and "
            "HF_HUB_OFFLINE is set",
            hint="unset HF_HUB_OFFLINE once, to fill the cache",
        )
    reason = f"it answered {status}" if status else " ".join(str(chain[-1]).split())[:200]
    if words := next((m for e in chain if (m := getattr(e, "server_message", None))), ""):
        reason += f": {' '.join(words.split())[:200]}"
    return DataError(
        f"{name} cannot be downloaded from {constants.ENDPOINT}: {reason}",
        hint="is the hub reachable? HF_ENDPOINT may name a mirror; files fetched so far are kept",
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = 0
    while error is not None and seen < 20:
        yield error
        error, seen = error.__cause__ or error.__context__, seen + 1


def _status(error: BaseException) -> int:
    return getattr(getattr(error, "response", None), "status_code", 0)
