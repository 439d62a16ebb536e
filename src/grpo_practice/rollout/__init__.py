"""One attempt at a question: agents, their tools and programs, and groups of attempts."""
