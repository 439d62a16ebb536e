"""Prompts: how their files are read and compiled, and what stands in each system prompt."""
