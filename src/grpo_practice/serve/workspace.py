"""The methods of `Workspace` that serve an agent."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.api.workspace import Workspace as Core

if TYPE_CHECKING:
    from grpo_practice.core.events import Emit
    from grpo_practice.serve.serving import Served

PORT = 8400
"""Default port of `serve`."""


class Serving(Core):
    """An agent as an endpoint for any program."""

    def serve(
        self,
        agent: "str | Path | Mapping[str, Any]",
        *,
        port: int = PORT,
        record: str | None = None,
        env: "Mapping[str, str] | None" = None,
        on_ready: "Callable[[Served], None]" = lambda _: None,
        on_event: "Emit | None" = None,
    ) -> None:
        """Serve an agent as `serve_async` does, until Ctrl-C."""
        import asyncio

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
        on_event: "Emit | None" = None,
    ) -> None:
        """Serve an agent file as an OpenAI-compatible endpoint, until the task is cancelled.

        Args:
            agent: File written by `export`, or a mapping with the contents of such a file.
            port: Port to listen on; 0 picks a free one.
            record: Run in which to store all requests and responses; None stores nothing.
            env: Variables that the agent may use; None means those of the process and of `.env`.
            on_ready: Called once the server accepts requests.
            on_event: Receives notices for the user.

        Raises:
            ConfigError: The agent, the port, or the name of the run cannot be used.
        """
        from grpo_practice.config.input import known
        from grpo_practice.core.events import silent, tee
        from grpo_practice.serve.serving import serve_agent

        # A text is always a path here; YAML text would be ambiguous with a file name.
        file = Path(agent) if isinstance(agent, str) else agent
        shown = repr(str(file)) if isinstance(file, Path) else "agent"
        command = self._command or f"{self!r}.serve({shown})"
        with ExitStack() as stack:
            store = stack.enter_context(self._store(create=True)) if record is not None else None
            to = None if store is None or record is None else (store, record, command)
            emit = tee(on_event or silent)
            await serve_agent(file, port, to, known(env), on_ready=on_ready, emit=emit)
