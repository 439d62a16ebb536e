"""Scoring of answers: built-in and custom verify functions, and the processes that run them."""
