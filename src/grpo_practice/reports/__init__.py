"""Typed reports, each with its JSON document."""
