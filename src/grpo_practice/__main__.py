"""`python -m grpo_practice` is `grpo-practice`."""

from grpo_practice.cli.main import main

main()
