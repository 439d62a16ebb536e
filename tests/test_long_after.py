"""Cases of a test that `make test` leaves out."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.conftest import pytest_collection_modifyitems


@dataclass
class Case:
    """What pytest collects of one case."""

    nodeid: str
    mark: pytest.Mark | None = None
    added: list[pytest.MarkDecorator] = field(default_factory=list)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if self.mark and self.mark.name == name else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.added.append(mark)


def test_cases_after_the_first_n_are_long() -> None:
    mark = pytest.mark.long_after(2).mark
    marked = [Case(f"a.py::{test}[{n}]", mark) for test in ("one", "two") for n in range(3)]
    others = [Case(f"a.py::three[{n}]") for n in range(3)]
    pytest_collection_modifyitems(cast("list[pytest.Item]", [*marked, *others]))
    long = [case.nodeid for case in [*marked, *others] if case.added == [pytest.mark.long]]
    assert long == ["a.py::one[2]", "a.py::two[2]"]
