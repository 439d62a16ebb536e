"""An answer without a request: was its program there at all, where it may be elsewhere?"""

from pathlib import Path

import pytest

from grpo_practice.errors import RunFailedError
from tests.agents.custom.test_run import Own


@pytest.mark.parametrize("way", ["def", "async def"])
@pytest.mark.parametrize("answer", ["sorry, I could not reach it", ""])
async def test_an_answer_of_elsewhere_that_never_reached_its_model_is_none(
    tmp_path: Path, way: str, answer: str
) -> None:
    project = Own(tmp_path)
    text = f"{way} solve(*_): return {answer!r}\n"
    far = "agent.proxy.url=http://127.0.0.1:9"
    with pytest.raises(RunFailedError, match=r"does it reach agent\.proxy from there"):
        await project.evaluate(*project.agent(text), far)
    assert project.query("SELECT DISTINCT outcome FROM rollouts") == [("error",)]
    near = await project.evaluate(*project.agent(text), "agent.proxy.url=null")
    assert near.outcomes == {"ok" if answer else "empty": 12}  # here it may know the answers


async def test_a_program_that_reaches_its_address_and_asks_nothing_knows_the_answers(
    tmp_path: Path,
) -> None:
    project = Own(tmp_path)
    words = project.agent("def solve(*_): return 'I know'\n")
    # Any setting of agent.proxy lets answers be doubted, and workers say there that they begin.
    report = await project.evaluate(*words, "agent.proxy.insecure=true", "agent.workers=2")
    assert report.outcomes == {"ok": 12}
