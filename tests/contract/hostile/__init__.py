"""Eight hostile folders, given to every command: no secret leaves, no planted program runs."""
