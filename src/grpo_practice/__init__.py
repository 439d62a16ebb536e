"""Lets an agent practise without touching its weights (Training-Free GRPO, arXiv 2510.08191)."""

# Not from `typing`: this file is run before `__main__` takes the current folder out of `sys.path`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from grpo_practice.workspace import Workspace as Workspace

__version__ = "0.1.0"
__all__ = ["Workspace", "__version__"]


def __getattr__(name: str) -> object:
    """Import `Workspace` where it is asked for, so that importing the package stays light."""
    if name == "Workspace":
        from grpo_practice.workspace import Workspace

        return Workspace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
