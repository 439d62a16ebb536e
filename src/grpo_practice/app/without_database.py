"""The part of `Workspace` that needs no database."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.events import Emit, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_practice.reports.scored_answer import ScoredAnswer
    from grpo_practice.reports.trust_report import TrustReport
    from grpo_practice.types import Sample


class WithoutDatabase:
    """Trust, and one answer by itself; a base of `Workspace`."""

    def trust(
        self, *paths: str | Path, hosts: Sequence[str] = (), keys: Sequence[str] = ()
    ) -> "TrustReport":
        """Remember that you trust files and folders of others; return all that you trust.

        Args:
            paths: Files, trusted while their texts stay what they are: an agent's, used from the
                current folder, or a database with the configurations in it; and whole folders.
            hosts: Hosts that may be sent each of the keys.
            keys: Variables with keys, `UTU_LLM_API_KEY` for instance.

        Raises:
            ConfigError: There is no such file, or it cannot be remembered.
        """
        from grpo_practice.app.trusting import trust

        return trust([Path(path) for path in paths], hosts, keys)

    def score_answer(
        self,
        function: str,
        sample: "Sample",
        response: str,
        params: "Mapping[str, Any] | None" = None,
        *,
        env: "Mapping[str, str] | None" = None,
        on_event: Emit = silent,
    ) -> "ScoredAnswer":
        """Score one response by itself; see `app.score_answer`. Nothing is stored."""
        from grpo_practice.app.blocking import run_blocking
        from grpo_practice.app.score_answer import score_answer

        scored = score_answer(function, sample, response, params, env=env, on_event=on_event)
        return run_blocking(scored)
