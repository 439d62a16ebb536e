"""The simulated measurements of experiences are those of their worlds."""

from math import isfinite

import numpy as np
import pytest
from bench.effect_proof import EXPERIENCES, KINDS, chances, effect_rows, measured


@pytest.mark.long_after(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_chances_of_whole_and_none_are_those_of_the_world(kind: str) -> None:
    it = measured(kind, 3)
    assert len(it.keys) == EXPERIENCES
    kinds = {it.world.item(key).kind for key in it.keys}
    assert kinds == set(KINDS[kind] or ("help", "null", "harm"))
    for shown, keys in ((True, it.keys), (False, ())):
        row = np.full((len(it.asked), 1, EXPERIENCES), shown)
        found = chances(it.world, it.asked, it.keys, row)[:, 0]
        assert found == pytest.approx(it.world.truth(it.asked, keys))


@pytest.mark.long
def test_every_promise_has_its_row() -> None:
    rows = effect_rows(tiny=True)
    assert len(rows) == 2 + 2 * len(KINDS)
    assert all(isfinite(value) for row in rows for value in row.values)
