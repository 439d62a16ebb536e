"""Export of the practised agent to files, with its exact system prompt and its origin."""
