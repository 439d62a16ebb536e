"""Typed reports of what a run came to."""
