"""Player of rollouts for a configuration: agent, tools and verify function."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.tools import McpToolkit, PythonToolkit, SearchToolkit, Toolkit
from grpo_practice.core.calls import Address, Chat, Scope
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.fences import Fences
from grpo_practice.core.played import PlayedTurn
from grpo_practice.rollout.agents import Agent
from grpo_practice.rollout.agents.simple import play_simple
from grpo_practice.rollout.agents.tool_agent import ToolAgent
from grpo_practice.rollout.play import Player
from grpo_practice.rollout.tools import Tool
from grpo_practice.rollout.tools.toolbox import Toolbox, store_logged
from grpo_practice.run.batched_runs import in_places
from grpo_practice.run.clients import Models
from grpo_practice.run.own_code import AgentFunction
from grpo_practice.run.session import OpenRun, Session, to_the_end
from grpo_practice.store.played_turns import played_turns
from grpo_practice.verify.resolve import VerifyFunction
from grpo_practice.verify.tool_calls import tools_named
from grpo_practice.verify.verifier import Verifier


@dataclass(frozen=True, slots=True)
class PlayerSpec:
    """The parts needed to play and score the rollouts of a run."""

    agent: AgentConfig
    base_dir: Path
    """Folder to which paths in the agent's configuration are relative."""
    student: ModelConfig
    judge: ModelConfig
    verify: VerifyFunction
    run_seed: int
    task_timeout_s: float
    function: AgentFunction | None = None
    """Agent itself, if it is a function in this process."""
    only_scores: bool = False
    """Whether stored rollouts are only scored again, so that no tool or agent is opened."""


@asynccontextmanager
async def open_player(
    spec: PlayerSpec, session: Session, run: OpenRun, models: Models
) -> AsyncIterator[tuple[Player, Player]]:
    """Open the player of a run, and a second player whose requests wait for all others.

    Raises:
        ConfigError: A model, tool or agent is unusable as configured, or the workers of the verify
            function cannot start.
    """
    async with AsyncExitStack() as stack:
        verifier = await stack.enter_async_context(
            Verifier(spec.verify, Fences(run.branch.fence_key))
        )
        await verifier.start()  # a function that cannot be called fails before rollouts are paid
        agent = play_simple
        if not spec.only_scores:
            opened = open_agent(spec.agent, models, run, spec.base_dir, spec.function, spec.verify)
            agent = await stack.enter_async_context(opened)
        if not spec.student.model_provider.batch:
            agent = in_places(agent, models.connections.at_once, session.admission)

        def turns(at: Address) -> list[PlayedTurn]:
            place = (at.branch_id, at.step, at.slot, at.attempt)
            return session.store.read(played_turns, place)

        async def player(*, later: bool) -> Player:
            return Player(
                agent=agent,
                student=await models.chats(spec.student, "student", later=later),
                judge=await models.chats(spec.judge, "judge", later=later),
                verify=to_the_end(session, verifier),
                run_seed=spec.run_seed,
                task_timeout_s=spec.task_timeout_s,
                emit=run.emit,
                turns=turns,
            )

        yield await player(later=False), await player(later=True)


UNCONFINED = (
    "python_executor: the backend subprocess is not a security boundary, so the model's code"
    " runs as you, and can read your files and use the network"
)


@asynccontextmanager
async def open_agent(
    config: AgentConfig,
    models: Models,
    run: OpenRun,
    folder: Path,
    function: AgentFunction | None = None,
    verify: VerifyFunction | None = None,
) -> AsyncIterator[Agent]:
    """Open the agent that plays the rollouts of a run; its tools are closed after the block.

    Tools that call a model get the model from `models`. Paths in the config are relative to
    `folder`. `function` is the agent itself if it is an object in this process. A notice is emitted
    if `verify` has rules about tools that the agent does not have.

    Raises:
        ConfigError: A tool or the user's program is unusable as configured.
    """
    if config.type != "simple":
        from grpo_practice.run.custom_agent import open_own

        plays = function.function if function else None
        log = partial(store_logged, run.ledger, run.emit)
        async with open_own(config, folder, run.notice, plays, log) as agent:
            yield agent
        return
    if not config.toolkits:
        _tell_unknown(verify, [], run)
        yield play_simple
        return
    async with AsyncExitStack() as stack:
        tools, fences = list[Tool](), Fences(run.branch.fence_key)
        reader = partial(models.chats, caller="teacher")
        for name, toolkit in config.toolkits.items():
            opened = await open_toolkit(toolkit, reader, folder, fences)
            tools += chosen(name, toolkit, await stack.enter_async_context(opened))
            if isinstance(toolkit, PythonToolkit) and toolkit.config.backend == "subprocess":
                run.notice(UNCONFINED)
        for runs_in in dict.fromkeys(tool.runs_in for tool in tools):
            names = ", ".join(tool.name for tool in tools if tool.runs_in == runs_in)
            run.notice(f"tools: {names} ({runs_in})")
        check_stop(config.stop_at_tool_names, tools)
        _tell_unknown(verify, [tool.name for tool in tools], run)
        box = Toolbox(tools, run.ledger, run.emit)
        yield ToolAgent(box.open, max_turns=config.max_turns, stop_at=config.stop_at_tool_names)


def _tell_unknown(verify: VerifyFunction | None, known: Sequence[str], run: OpenRun) -> None:
    """Emit a notice about tools that only the verify function names, as after a typing error."""
    if verify is None or not verify.built_in or not verify.built_in.reads_rollout:
        return
    unknown = [name for name in tools_named(verify.params) if name not in known]
    if unknown:
        run.notice(
            f"verify {verify.name} has rules about {', '.join(unknown)}, but the tools of the agent"
            f" are {', '.join(known) or 'none'}"
        )


ModelOpener = Callable[[ModelConfig], Awaitable[Callable[[Scope], Chat]]]
"""Function that opens the model for a tool."""


async def open_toolkit(
    toolkit: Toolkit, reader: ModelOpener, folder: Path, fences: Fences
) -> AbstractAsyncContextManager[list[Tool]]:
    """Return a context that opens the toolkit's tools and raises ConfigError on failure."""
    match toolkit:
        # Each toolkit is imported only if it is used, since it may need an extra of its own.
        case PythonToolkit():
            from grpo_practice.rollout.tools.python import open_python

            return open_python(toolkit.config, folder)
        case SearchToolkit():
            from grpo_practice.rollout.tools.search.toolkit import open_search

            assert toolkit.config_llm is not None, "the loader fills it"
            return open_search(toolkit.config, await reader(toolkit.config_llm), fences)
        case McpToolkit():
            from grpo_practice.rollout.tools.mcp import open_mcp

            return open_mcp(toolkit, folder)


def check_stop(names: Iterable[str], tools: Sequence[Tool]) -> None:
    """Raise ConfigError unless each name is a tool at which a rollout can stop."""
    known = [tool.name for tool in tools]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"stop_at_tool_names: there is no tool {name!r}",
                hint=f"the tools are {', '.join(known)}",
            )


def chosen(name: str, toolkit: Toolkit, tools: list[Tool]) -> list[Tool]:
    """Return the activated tools in the config's order; raise ConfigError for an unknown tool."""
    if toolkit.activated_tools is None:
        return tools
    known = {tool.name: tool for tool in tools}
    for wanted in toolkit.activated_tools:
        if wanted not in known:
            raise ConfigError(
                f"toolkits.{name}.activated_tools: there is no tool {wanted!r}",
                hint=f"it has {', '.join(known)}",
            )
    return [known[wanted] for wanted in toolkit.activated_tools]
