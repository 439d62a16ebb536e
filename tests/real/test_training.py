"""A few steps of training the real model, with an adapter and with whole weights."""

from pathlib import Path

import pytest

from tests.real.folder import Folder
from tests.real.questions import capitals, parts
from tests.real.servers import Server
from tests.real.test_scores import table
from tests.real.training import WHOLE, write_config

STEPS = 8


@pytest.mark.parametrize("kind", ["adapter", "whole"])
def test_trained_weights_are_served_and_better(
    folder: Folder, transformers: Server, kind: str
) -> None:
    practise, test = parts(capitals(), 32, 24)
    folder.upload("capitals-train", practise)
    folder.upload("capitals-test", test)
    train = {"steps": STEPS, **(WHOLE if kind == "whole" else {})}
    write_config(folder, transformers, kind, train=train)
    trained = folder.json("train", "--config", f"{kind}.yaml")
    assert len(trained["steps"]) == STEPS
    folder.run("export-agent", "--run", f"{kind}/train", "--merge", "-o", f"{kind}-trained")
    assert Path(folder.path, f"{kind}-trained", "model", "model.safetensors").is_file()
    arms = folder.json("eval", "--config", f"{kind}.yaml", "--arms", "base,trained", "-k", "4")
    for arm in arms["arms"]:
        table(f"{kind} {arm['named']}", arm["score"])
    (contrast,) = arms["contrasts"]
    if kind == "adapter":
        # Whole weights learn more slowly at a rate that does not break them.
        assert contrast["difference"]["ci95"][0] > 0
    assert contrast["verdict"] != "worse"
