"""GRPO on weights: an adapter to TRL that reuses the questions, scoring and store of practice.

Source: DeepSeekMath (arXiv:2402.03300). torch, TRL and PEFT take seconds to import and gigabytes
to install, so only this package imports them, and only inside functions.
"""
