"""The exported agent, loaded by the rules of the method's reference implementation."""

import json
import random
import subprocess
from pathlib import Path

from grpo_practice.core.types import Library
from tests.reports.rendered import render
from tests.reports.sample import AGENT, LIBRARY, agent

REQUIRES = ("hydra-core>=1.3,<2",)

LOADER = """
import json, sys
from pathlib import Path
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

folder = Path("configs").absolute()
(folder / "agents/practice").mkdir(parents=True)
with initialize_config_dir(config_dir=str(folder), version_base="1.3"):
    for line in sys.stdin:
        (folder / "agents/practice/x.yaml").write_text(json.loads(line), "utf-8", newline="")
        try:
            config = compose(config_name="agents/practice/x")
            OmegaConf.resolve(config)  # its load_agent_config resolves twice: here, and below
            print(json.dumps(OmegaConf.to_container(config, resolve=True)))
        except Exception as e:
            print(json.dumps(repr(e)))
"""

PIECES = [
    *("${", "\\", "}", "$", "{", "foo", "\n", "\t", " ", "#", "'", '"', ":", "-", "|", ">", "???"),
    *("${oc.env:HOME}", "\\boxed{{", "é", "\x85", "\u2028", "😀", "&", "*", "!", "%", "[", "]"),
    *(",", "0x1", "1e3", "~", "null"),
]


def check(python: Path, folder: Path) -> str:
    """Load 500 agents whose instructions are made of the marks of YAML and of OmegaConf."""
    draw = random.Random(1)
    agents = [AGENT]
    for n in range(500):
        text = "".join(draw.choices(PIECES, k=draw.randrange(13)))
        library = LIBRARY if n % 2 else Library(())
        agents.append(agent(instructions=text or "x", library=library))
    loader = subprocess.run(
        [python, "-c", LOADER],
        cwd=folder,
        input="".join(json.dumps(render(a, "yaml")) + "\n" for a in agents),
        capture_output=True,
        text=True,
        check=True,
    )
    for made, line in zip(agents, loader.stdout.splitlines(), strict=True):
        got = json.loads(line)
        assert isinstance(got, dict), f"{made.system_prompt!r}: {got}"
        assert got["agent"] == {"name": made.name, "instructions": made.system_prompt}
        assert got["model"]["model_provider"]["model"] == made.model
    return f"{len(agents)} agents, each with its name, model and instructions byte for byte"
