"""Requests for runs; their fields are keyword arguments in Python and options of commands."""
