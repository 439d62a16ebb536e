"""Serving an agent: the part of `Workspace` that answers others."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.app.database_file import DatabaseFile
from grpo_practice.events import Emit, silent, tee

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_practice.app.serving import Served

PORT = 8400
"""Port to serve at where none is given."""


class ServedAgents(DatabaseFile):
    """Agents that are served; a base of `Workspace`."""

    def serve(
        self,
        agent: "str | Path | Mapping[str, Any]",
        *,
        port: int = PORT,
        record: str | None = None,
        env: "Mapping[str, str] | None" = None,
        on_ready: "Callable[[Served], None]" = lambda _: None,
        on_event: Emit = silent,
    ) -> None:
        """Serve an agent as `serve_async` does, until Ctrl-C."""
        work = self.serve_async(
            agent, port=port, record=record, env=env, on_ready=on_ready, on_event=on_event
        )
        with suppress(KeyboardInterrupt):
            asyncio.run(work)

    async def serve_async(
        self,
        agent: "str | Path | Mapping[str, Any]",
        *,
        port: int = PORT,
        record: str | None = None,
        env: "Mapping[str, str] | None" = None,
        on_ready: "Callable[[Served], None]" = lambda _: None,
        on_event: Emit = silent,
    ) -> None:
        """Serve an agent's file as an OpenAI-compatible endpoint, until the task is cancelled.

        Args:
            agent: File, as `export` writes it, or the mapping that one would hold.
            port: 0 takes any free one.
            record: Run to keep all that passes in.
            env: Variables that the agent may name; None: the process's, and those of `.env`.
            on_ready: Called once requests are answered.
            on_event: Told what a person should know.

        Raises:
            ConfigError: The agent, the port, or the name of the run cannot be used.
        """
        from grpo_practice.app.request import known
        from grpo_practice.app.serving import serve_agent

        file = Path(agent) if isinstance(agent, str) else agent
        shown = repr(str(file)) if isinstance(file, Path) else "agent"
        command = self._command or f"{self!r}.serve({shown})"
        with ExitStack() as stack:
            store = stack.enter_context(self._store(create=True)) if record is not None else None
            to = None if store is None or record is None else (store, record, command)
            await serve_agent(file, port, to, known(env), on_ready=on_ready, emit=tee(on_event))
