"""The published datasets that `data download` knows by name."""

PUBLISHED = ("AIME24", "AIME25", "DAPO-Math-17k", "AFM_web_RL", "WebWalkerQA")


def way_to(name: str) -> str:
    """The command that makes a dataset of this name."""
    known = next((known for known in PUBLISHED if known.casefold() == name.casefold()), None)
    if known is None:
        return f"grpo-practice data upload FILE --name {name}"
    return f"grpo-practice data download {known}" + ("" if known == name else f" --name {name}")
