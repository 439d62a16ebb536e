"""The composition root: builds objects from a config, and the objects do the command's work."""
