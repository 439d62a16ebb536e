"""Pages for people: the report of a run as a single file, and the local viewer."""
