"""Lets an agent practise without touching its weights (Training-Free GRPO, arXiv 2510.08191)."""

__version__ = "0.1.0"
