"""Calls, tokens, money and time that a run still needs."""
