"""Serving of the practised agent: its prompt is added to every request, the rest is forwarded."""
