"""Real programs that this one works with, each in an environment of its own; run by hand."""
