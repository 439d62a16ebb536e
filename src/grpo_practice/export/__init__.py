"""The enhanced agent as a file: its exact system prompt, and where it comes from."""
