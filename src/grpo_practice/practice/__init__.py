"""The method: plan, distil, merge, and the loop that turns practice into a library."""

METHOD = 2
"""How a step is distilled and merged. Raised when the same replies would lead to another library:
a run goes on only as it was begun.

1: Proposals are merged as the model likes. 2: Votes are counted (`evidence.py`).
"""
