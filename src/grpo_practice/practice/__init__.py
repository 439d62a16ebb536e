"""The method: plan, distil, merge, and the loop that turns practice into a library."""

METHOD = 1
"""How a step is distilled and merged. Raised when the same replies would lead to another library:
a run goes on only as it was begun.
"""
