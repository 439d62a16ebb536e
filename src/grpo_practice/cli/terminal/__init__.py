"""Output for a terminal: progress, tables, consoles."""
