"""Export of the agent that was measured, rebuilt from the stored records of its run."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from grpo_practice.config.input import known
from grpo_practice.config.reading.interpolate import interpolate, variables
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.tools import Toolkit
from grpo_practice.config.trust.word import stored_digest, user_trust
from grpo_practice.core.calls import API_NAMES, ApiName
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.reports.before_after import BeforeAfter
from grpo_practice.reports.exported_agent import ExportedAgent, Measured, Provenance
from grpo_practice.reports.known_scores import KnownScore
from grpo_practice.run.agent_file import endpoint_written, model_as_written, without_secrets
from grpo_practice.run.library_refs import LibraryRef
from grpo_practice.run.own_code import is_of_program
from grpo_practice.run.trusting import trusts
from grpo_practice.store import Store, libraries
from grpo_practice.store.queries import references, runs

_AGENT = "evaluation.agent."


def exported(store: Store, found: LibraryRef, scores: BeforeAfter) -> ExportedAgent:
    """Return the agent that played with this library, and its known scores.

    The agent is read from the identity of its branch, in which every variable has the value that it
    had when the agent played. The export therefore needs no key and no URL.

    Raises:
        ConfigError: The instructions are not stored byte for byte, or the run is a stranger's.
    """
    _check_trust(store, found.run)
    record = store.read(references.record, found.branch)
    config = AgentConfig.model_validate(_nested(record.identity))
    # Redaction may have changed the stored instructions. An agent with other instructions is not
    # the one that was measured.
    _check_prompt(store, found, config.agent.instructions)
    settings = config.model.model_settings.model_dump(exclude_none=True)
    written = model_as_written(record.config_text)
    timeout = written.at("model_settings").at("extra_args").data.get("timeout")
    if timeout is not None:  # not part of the identity, but long answers need it
        settings["extra_args"] = {**settings.get("extra_args", {}), "timeout": timeout}
    left_out = list[str]()
    return ExportedAgent(
        name=config.agent.name,
        instructions=config.agent.instructions,
        library=found.library,
        model=config.model.model_provider.model,
        model_settings=without_secrets(settings, "model_settings", left_out),
        toolkits={name: _toolkit(kit) for name, kit in config.toolkits.items()},
        max_turns=config.max_turns,
        api=_api(written.at("model_provider").data),
        endpoint=endpoint_written(written.at("model_provider").data),
        more=_more(config),
        provenance=_provenance(store, found, scores, tuple(left_out)),
    )


def remember_export(store: Store, found: LibraryRef, text: str) -> None:
    """Remember the exported file as trusted, if the run itself is trusted.

    The file is trusted in the run's folder and in the current folder; elsewhere it counts as
    foreign.
    """
    stored = store.read(runs.config, found.run)
    if stored is None:
        return
    trust, folder = user_trust(os.environ), Path(stored.base_dir)
    # Never trust more than before: an agent from a foreign run stays foreign.
    if trusts(trust, stored, store.path):
        # The export is complete even if the trust cannot be stored; its user is then asked to
        # trust it.
        with suppress(ConfigError):
            trust.remember([stored_digest(text, place) for place in (folder, Path.cwd())], None)


def call_of_program(agent: ExportedAgent, workspace: str) -> str | None:
    """Return the call that evaluates the agent, if only the program that began its run can."""
    function = agent.more.get("function")
    if function is None or not is_of_program(function):
        return None
    name = function.rpartition(":")[2].rpartition(".")[2]
    return f"{workspace}.evaluate(agent={name}, library='L{agent.library.id}')"


def _api(written: Mapping[str, Any]) -> ApiName:
    """Return the API of a model as configured; a variable has the value that it has now."""
    # Not part of the identity: a run may go on with another API.
    usual = None if written.get("base_url") else "${oc.env:UTU_LLM_TYPE,null}"
    named = written.get("type", usual)
    named = interpolate(named, known(None), []) if variables(named) else named
    return next((name for name in API_NAMES if name == named), "chat.completions")


def _toolkit(kit: Toolkit) -> dict[str, Any]:
    """Return the toolkit as a configuration would contain it, without default values."""
    # `mode` is a default, too, but tells the kinds apart.
    return {"mode": kit.mode, **kit.model_dump(exclude_defaults=True)}


def _more(config: AgentConfig) -> dict[str, Any]:
    """Return the agent's configuration keys that not every agent has."""
    more: dict[str, Any] = {}
    if config.stop_at_tool_names:
        more["stop_at_tool_names"] = list(config.stop_at_tool_names)
    if config.type != "simple":
        more["type"] = config.type
        more |= {"function": config.function} if config.function else {}
        more |= {"command": list(config.command)} if config.command else {}
    return more


def _provenance(
    store: Store, found: LibraryRef, known: BeforeAfter, left_out: tuple[str, ...]
) -> Provenance:
    run = store.read(runs.get, found.run)
    return Provenance(
        run=run.name,
        branch=found.branch,
        step=found.step,
        simulated=run.simulated,
        before=_evidence(known.before),
        after=_evidence(known.after),
        difference=known.conclusion.sentence if known.conclusion else None,
        left_out=left_out,
        edited_from=store.read(references.edited_from, found.library.id),
    )


def _evidence(known: KnownScore | None) -> Measured | None:
    return None if known is None else Measured(known.run, known.dataset, known.score)


def _check_trust(store: Store, run: str) -> None:
    """Raise ConfigError for an imported run that the user has not trusted.

    The exported file may lie in a folder that the user trusts, with a stranger's programs and URLs.
    """
    stored = store.read(runs.config, run)
    if stored is None or not stored.imported:
        return
    if not trusts(user_trust(os.environ), stored, store.path):
        raise ConfigError(
            f"{run} was imported, and you have not trusted its settings",
            hint=f"read them in the page that grpo-practice report {quote(run)} writes, then name"
            " the file that it came from to `grpo-practice trust`",
        )


def _check_prompt(store: Store, found: LibraryRef, instructions: str) -> None:
    """Raise ConfigError unless the stored parts reproduce the prompt of a rollout exactly."""
    played = store.read(references.any_system_prompt, found.branch)
    if (
        played is not None
        and system_prompt(instructions, store.read(libraries.load, played[1])) != played[0]
    ):
        raise ConfigError(
            f"the stored instructions of {found.run} differ from those its agent received:"
            " a text in them was redacted as a secret, another version played it, or the library is"
            " only a control, such as `filler`",
            hint=f"`grpo-practice experiences list --run {quote(found.run)}` lists the experiences,"
            " so that you can add them to the instructions by hand",
        )


def _nested(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the agent's part of a flat identity as a nested mapping."""
    out: dict[str, Any] = {}
    for key, value in identity.items():
        if key.startswith(_AGENT):
            *above, last = key.removeprefix(_AGENT).split(".")
            section = out
            for part in above:
                section = section.setdefault(part, {})
            section[last] = value
    return out
