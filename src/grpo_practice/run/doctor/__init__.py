"""Checks of the problems that a configuration would cause, before it costs anything."""
