"""How an answer is scored: verify functions, built in and custom, and where they run."""
