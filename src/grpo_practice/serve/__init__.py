"""Serving of the practised agent: requests are forwarded to its model with its prompt added."""
