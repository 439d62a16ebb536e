"""Requests for runs: their fields are keywords in Python, and options of commands."""
