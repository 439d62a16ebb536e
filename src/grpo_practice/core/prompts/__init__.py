"""Prompts: reads and compiles their files, and builds the system prompt of an agent."""
