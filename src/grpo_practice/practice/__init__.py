"""The method: plan, distil, merge, and the loop that turns practice into a library."""

METHOD = 3
"""How a step is distilled and merged. Raised when the same replies would lead to another library:
a run goes on only as it was begun.

1: Proposals are merged as the model likes. 2: Votes are counted (`evidence.py`). 3: Of a text that
gives an answer away, the sentences stay that do not.
"""
