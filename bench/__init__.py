"""Benchmarks, run by hand: how much of a run's time and memory is ours, and not the model's."""
