"""The program as a person runs it, as in the contract."""

from tests.contract.command import Gp, Ran
from tests.contract.conftest import demo, finished_demo, gp

__all__ = ["Gp", "Ran", "demo", "finished_demo", "gp"]
