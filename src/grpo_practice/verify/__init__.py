"""Scoring of answers: built-in and custom verify functions, and the processes that run them."""

READ_NO_ANSWER = frozenset({"contains", "judge"})
"""Built-in functions that extract no answer from the response. Reports need only this set, so it
stands here rather than in the table of `verify/builtin.py`, which imports all functions."""
