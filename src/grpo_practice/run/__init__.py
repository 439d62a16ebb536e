"""The composition root: a config becomes objects, and the objects do the command's work."""
