"""The enhanced agent as files: its exact system prompt, and where it comes from."""
