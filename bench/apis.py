"""What the Responses API costs beside chat completions: processor time of a rollout, in turns.

The built-in agent asks once; a program asks eight times, each time with the whole conversation, and
speaks the API of the endpoint. Target: 1.15 times that of chat completions. With 1 KB of encrypted
reasoning in each reply, a response has more to carry; that figure is only told.
"""

from collections.abc import Mapping

from bench.harness import Row, at_most, cli, endpoint, folder, run, write_config, write_tasks

TURNS = 8
CONCURRENCY = 64
MOST = 1.15
APIS = ("chat.completions", "responses")
PROGRAM = f"""
from aiohttp import ClientSession


def user(text):
    return {{"role": "user", "content": text}}


async def solve(question, system, context):
    said = [user(question)]
    async with ClientSession() as session:
        for _ in range({TURNS}):
            chat = {{"messages": [{{"role": "system", "content": system}}, *said]}}
            body = {{"instructions": system, "input": said}} if API == "responses" else chat
            url = context.base_url + "/" + API.replace(".", "/")
            async with session.post(url, json={{"model": context.model, **body}}) as reply:
                told = await reply.json()
            if API == "responses":
                said += told["output"]
                answer = told["output"][-1]["content"][0]["text"]
            else:
                said.append(told["choices"][0]["message"])
                answer = said[-1]["content"]
            said.append(user("Are you sure?"))
    return answer
"""


def cpu_ms(api: str, rollouts: int, agent: Mapping[str, object], reasoning: int) -> float:
    """Return the processor time of one rollout of an evaluation, in milliseconds."""
    with endpoint(size=300, reasoning=reasoning) as url, folder() as here:
        write_tasks(here / "tasks.jsonl", rollouts)
        cli(here, "data", "upload", "tasks.jsonl", "--name", "tasks")
        (here / "own.py").write_text(f"API = {api!r}\n{PROGRAM}")
        write_config(
            here / "c.yaml", url, evaluation={"verify": "exact", "concurrency": CONCURRENCY}
        )
        sets = [f"evaluation.agent.{key}={value}" for key, value in agent.items()]
        sets.append(f"evaluation.agent.model.model_provider.type={api}")
        words = [word for one in sets for word in ("--set", one)]
        done = run(here, "eval", "--config", "c.yaml", *words)
        assert done.document["outcomes"] == {"ok": rollouts}, done.document["outcomes"]
        return 1000 * done.cpu_s / rollouts


def rows(runs: int, *, tiny: bool) -> list[Row]:
    """Measure both APIs in turns, and tell the ratio of each pair."""
    program = {"type": "python", "function": "own.py:solve"}
    found = list[Row]()
    for name, agent, rollouts in (
        ("one turn", {}, 4_000),
        (f"a program of {TURNS} turns", program, 800),
    ):
        for reasoning in (0, 1024):
            pairs = [
                [cpu_ms(api, 16 if tiny else rollouts, agent, reasoning) for api in APIS]
                for _ in range(runs)
            ]
            ratios = [responses / chat for chat, responses in pairs]
            what = f"Responses / chat completions, {name}" + ", reasoning of 1 KB" * bool(reasoning)
            target = ("", None) if reasoning else (f"≤ {MOST}", at_most(MOST))
            row = Row(f"{what}: CPU of a rollout", *target[:1], ratios, target[1])
            row.notes["ms"] = pairs
            found.append(row)
    return found
