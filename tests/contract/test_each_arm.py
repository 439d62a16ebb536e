"""`eval --arms` with alternatives: each is compared with each, and the best is named."""

from pathlib import Path

import pytest

from tests.contract.advice import next_words
from tests.contract.command import Gp
from tests.late import Late

multitest = Late("statsmodels.stats.multitest")


@pytest.fixture
def prompts(demo: Gp) -> Gp:
    """`demo` with two prompts without experiences, beside the exported agent."""
    text = Path("agent.yaml").read_text("utf-8")
    begin, end = text.index("\n    ## Experience"), text.index("\n", text.rindex("  [E"))
    for name, said in (("pa.yaml", "Solve the"), ("pb.yaml", "Solve this")):
        plain = (text[:begin] + text[end:]).replace("Solve the", said)
        Path(name).write_text(plain, "utf-8")
    return demo


@pytest.mark.long
def test_alternatives_are_compared_each_with_each(prompts: Gp) -> None:
    words = ("eval", "--run", "demo", "--arms", "pa.yaml,pb.yaml,agent.yaml")
    found = prompts(*words, "--json").document
    named = {arm["run"]: arm["named"] for arm in found["arms"]}
    pairs = [(named[one["baseline"]], named[one["arm"]]) for one in found["contrasts"]]
    assert pairs == [("pa.yaml", "pb.yaml"), ("pa.yaml", "agent.yaml"), ("pb.yaml", "agent.yaml")]
    (look,) = {(one["look"]["number"], one["look"]["together"]) for one in found["contrasts"]}
    assert look[1] == 3
    level = 0.04 if look[0] == 1 else 0.01 / (look[0] * (look[0] - 1))
    ps = multitest.multipletests([c["difference"]["p"] for c in found["contrasts"]], method="holm")
    adjusted = [min(p * 0.05 / level, 1) for p in ps[1]]
    assert [one["p_adjusted"] for one in found["contrasts"]] == pytest.approx(adjusted)
    assert named[found["best"]] == "agent.yaml"

    shown = prompts(*words)
    assert "Best: agent.yaml, which is better than each other arm" in shown.out
    assert f"The arms disagree on {len(found['disagreed'])} of 40 questions." in shown.out
    assert "5 of " in shown.out
    assert [str(sample) for sample in found["disagreed"][:5]] == [*found["expected"]]
    block = shown.out[shown.out.index("The arms disagree") :]
    for sample, (answer,) in found["expected"].items():
        assert f"  expected           {answer}\n" in block
        assert found["texts"][sample][:40] in block
    assert prompts(*next_words(shown.out)).code == 0

    # A part of the comparison that is printed later keeps the adjustment of the whole.
    told = "Adjusted for 3 contrasts measured together: the p values, not the intervals."
    assert told in shown.out
    for contrast in found["contrasts"]:
        if "pb.yaml" not in (named[contrast["baseline"]], named[contrast["arm"]]):
            continue  # both arms reuse answers, so they belong to the comparison before
        two = (contrast["baseline"], contrast["arm"])
        assert told in prompts("runs", "compare", *two).out
        (alone,) = prompts("runs", "compare", *two, "--json").document["contrasts"]
        assert alone["look"] == contrast["look"]
        assert alone["p_adjusted"] >= contrast["p_adjusted"]
