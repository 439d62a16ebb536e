"""Checks for problems that a configuration would cause, before it costs anything."""
