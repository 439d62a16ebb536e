"""`executor: ray`: runs a user's program on the nodes of a Ray cluster; all else runs here."""

import asyncio
from functools import partial
from typing import Any

from grpo_practice.core.errors import AgentError, ConfigError
from grpo_practice.core.user_code import start_thread
from grpo_practice.rollout.agents import on_node
from grpo_practice.rollout.agents.custom_agents import GRACE_S
from grpo_practice.rollout.agents.on_node import Source
from grpo_practice.rollout.agents.program_context import ProgramContext, agent_error
from grpo_practice.rollout.agents.ray_cluster import ClusterSettings, Node, nodes_for, ray_cluster
from grpo_practice.rollout.chat_server.proxy import Invitation

LOOK_S = 120.0
"""Maximum seconds to wait for a node's first message; the node may have to set up its environment
first.
"""


class RayProgram:
    """A `Program` that runs on a node: each rollout is a task that is never retried."""

    def __init__(self, source: Source, settings: ClusterSettings) -> None:
        self._source, self._settings = source, settings
        self._nodes = list[Node]()
        self._task: Any = None

    async def start(self, local_cores: int) -> None:
        """Connect; raise ConfigError if the cluster does not exist or has no room."""
        await ray_cluster.enter(self._settings, local_cores)
        try:
            import ray

            self._nodes = nodes_for(self._settings)
            # By default Ray retries a task whose process has died, which would repeat its
            # requests.
            self._task = ray.remote(on_node.play_on_node).options(
                num_cpus=self._settings.num_cpus,
                resources=dict(self._settings.resources),
                max_retries=0,
            )
        except BaseException:
            await ray_cluster.leave()
            raise

    async def close(self) -> None:
        """Leave the cluster."""
        await ray_cluster.leave()

    @property
    def capacity(self) -> int:
        """Number of programs that the cluster can run simultaneously."""
        return sum(node.capacity for node in self._nodes)

    async def probe_nodes(self, invited: Invitation, model: str) -> dict[str, float]:
        """Return how many seconds a request to the address takes from each node.

        Raises:
            ConfigError: A node cannot load the program or does not reach the address.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Ask all nodes before waiting for any: each may need minutes to set up its environment.
        asked = {
            node.address: ray.remote(on_node.probe)
            .options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(self._source, invited.base_url, invited.token, model)
            for node in self._nodes
        }
        seconds = dict[str, float]()
        for address, ref in asked.items():
            try:
                async with asyncio.timeout(LOOK_S):
                    took_s, why = await asyncio.wrap_future(ref.future())
            except (TimeoutError, ray.exceptions.RayError) as e:
                took_s, why = 0.0, _said(e)
            if why:
                raise ConfigError(
                    f"agent.ray: node {address} cannot play: {why}",
                    hint="docs/clusters.md lists a node's needs; agent.ray.resources selects nodes",
                )
            seconds[address] = took_s
        return seconds

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the program's answer."""
        import ray

        ref = self._task.remote(self._source, question, system, context)
        try:
            answered, text, logged = await asyncio.wrap_future(ref.future())
        except asyncio.CancelledError:
            # The node may not receive this: if it is gone, a program still running there finds
            # that its address no longer exists.
            start_thread(partial(ray.cancel, ref, force=True))
            ended = asyncio.wrap_future(ref.future())
            # Read the exception, or asyncio prints that it was never retrieved.
            ended.add_done_callback(lambda f: f.cancelled() or f.exception())
            await asyncio.wait((ended,), timeout=GRACE_S / 2)
            raise
        except ray.exceptions.RayError as e:
            raise agent_error(f"{self._source.name} did not finish: {_said(e)}") from e
        if not answered:
            raise AgentError(text)
        context.logged.extend(logged)
        return str(text)


def _said(error: BaseException) -> str:
    """Return the beginning of Ray's error message, which is a page long."""
    text = " ".join(str(error).split()) or "no answer"
    return text.partition(". ")[0]
