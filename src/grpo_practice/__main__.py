"""`python -m grpo_practice` is `grpo-practice`."""

import gc
import sys

from grpo_practice.core.safe_path import safe_path

# Before anything else is imported: `python -m` looks for all of it in the current folder first.
sys.path[:] = safe_path()


def main() -> None:
    """Run the command line; stop cleanly on Ctrl-C even while it is being imported."""
    # Imported objects stay in use. Looking for garbage among them takes a twentieth of a short
    # command; commands that work for long set another threshold.
    gc.set_threshold(1_000_000)
    try:
        import fcntl  # noqa: F401 - locks and workers need it
    except ImportError:
        sys.exit("error: grpo-practice runs on Linux and macOS; on Windows, use WSL")
    try:
        # Not at the top: the imports take most of a second, and Ctrl-C would print a traceback.
        from grpo_practice.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
