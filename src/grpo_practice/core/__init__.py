"""Types, errors, text, hashing, redaction, statistics, prompts and processes: the ground floor."""
