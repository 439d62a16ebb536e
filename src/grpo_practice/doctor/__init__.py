"""Checks of what would go wrong with a configuration, before it costs anything."""
