"""`python -m grpo_practice` is `grpo-practice`."""

import sys

from grpo_practice.safe_path import safe_path

# Before anything else is imported: `python -m` looks for all of it in the current folder first.
sys.path[:] = safe_path()

from grpo_practice.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
