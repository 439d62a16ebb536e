"""Pages for people: the report of a run as one file, and the local viewer."""
