"""GRPO on weights: an adapter on TRL, over the questions, the scoring and the store of practice.

Source: DeepSeekMath (arXiv:2402.03300). torch, TRL and PEFT take seconds to import and gigabytes
to install, and are imported inside functions, here alone.
"""
