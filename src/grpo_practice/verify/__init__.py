"""Scoring of answers: built-in and custom verify functions, and the processes that run them."""

READ_NO_ANSWER = frozenset({"contains", "judge"})
"""Built-in functions that extract no answer from the response. The set is defined here rather than
in the table in `verify/builtin.py`, because reports need only the set, and that module imports
all functions.
"""
