"""The method: plan, distil, merge, and the loop that turns practice into a library."""

METHOD = 2
"""Version of the distillation and the merge of a step. Raise it whenever the same replies would
lead to a different library: a run can only be resumed with the version it began with.
"""
