"""The method: plan, distil, merge, and the loop that turns practice into a library."""

METHOD = 1
"""Version of how a step is distilled and merged. Raise it whenever the same replies would lead to a
different library: a run resumes only with the method it began with.
"""
