"""The exported agent as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_practice import __version__
from grpo_practice.core.calls import ApiName
from grpo_practice.core.prompts.system import library_sha, system_prompt
from grpo_practice.core.stats import Score
from grpo_practice.core.types import Library


@dataclass(frozen=True, slots=True)
class Measured:
    """The score of an evaluation."""

    run: str
    dataset: str
    score: Score


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of an agent."""

    run: str
    branch: int
    step: int | None
    """Last step that contributed to the library; None for the library from before the first
    step."""
    simulated: bool
    before: Measured | None = None
    """Score of the agent without its library, if it was evaluated."""
    after: Measured | None = None
    """Score of the agent with its library, if it was evaluated."""
    difference: str | None = None
    """Sentence on the difference between the two scores; None if either is missing."""
    left_out: tuple[str, ...] = ()
    """Settings that are not exported because they contain secrets."""
    edited_from: int | None = None
    """Number of the library that a person edited to make this one; None for a learnt library."""


@dataclass(frozen=True, slots=True)
class ExportedAgent:
    """An agent with its experiences."""

    name: str
    instructions: str
    """Instructions without the library."""
    library: Library
    model: str
    model_settings: Mapping[str, Any]
    """Model settings that are set, without secrets."""
    toolkits: Mapping[str, Any]
    max_turns: int
    provenance: Provenance
    api: ApiName = "chat.completions"
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    """`base_url` of the model and the variable of its `api_key`, as configured; without secrets."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the agent's config: `stop_at_tool_names`, or the agent program."""
    place: str = ""
    """Name of the file or folder to export to; "" if there is no such file."""

    @property
    def system_prompt(self) -> str:
        """System prompt, byte for byte as in practice and evaluation."""
        return system_prompt(self.instructions, self.library)

    @property
    def facts(self) -> list[str]:
        """Origin and scores as sentences for the reader."""
        origin, n = self.provenance, len(self.library)
        made = "before its first step" if origin.step is None else f"after step {origin.step}"
        made = f"edited from L{origin.edited_from}" if origin.edited_from else made
        facts = [
            f"exported by grpo-practice {__version__} from run {origin.run} "
            f"(branch {origin.branch}), {made}",
            f"library L{self.library.id}: {n} experience{'s' if n != 1 else ''}, "
            f"sha256 {library_sha(self.library).hex()}",
        ]
        if origin.simulated:
            facts.append("SIMULATED: made with a simulated model; it says nothing about a real one")
        for when, known in (("without", origin.before), ("with", origin.after)):
            if known is not None:
                facts.append(f"score {when} the library: {_score(known)}")
        if origin.difference:
            facts.append(f"with the library: {origin.difference}")
        if self.more.get("type"):
            facts.append(
                "its program is not in this file: its path is relative to the config that uses it"
            )
        if origin.left_out:
            facts.append(f"not exported, as they hold secrets: {', '.join(origin.left_out)}")
        return facts


def _score(known: Measured) -> str:
    s = known.score
    mean = "unknown" if s.mean is None else f"{s.mean:.3f}"
    interval = f" (95 % interval {s.ci95[0]:.3f} to {s.ci95[1]:.3f})" if s.ci95 else ""
    return (
        f"{mean}{interval} on {known.dataset}, {s.questions} questions, {s.scored} of "
        f"{s.planned} rollouts scored (run {known.run})"
    )
