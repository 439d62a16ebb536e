"""Requests for runs, with fields that are keywords in Python and options of commands."""
