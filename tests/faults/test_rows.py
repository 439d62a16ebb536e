"""Every row of the table is tested, or is left out for a reason."""

from pathlib import Path

from tests.faults.rows import LEFT_OUT, TITLES, found_by_row, report, rows_of


def test_every_row_is_tested_or_left_out_and_none_is_both() -> None:
    tested = found_by_row().keys()
    neither, both = TITLES.keys() - tested - LEFT_OUT.keys(), tested & LEFT_OUT.keys()
    assert (sorted(neither), sorted(both)) == ([], [])


def test_no_test_names_a_row_that_is_not_there() -> None:
    unknown = (found_by_row().keys() | LEFT_OUT.keys()) - TITLES.keys()
    assert sorted(unknown) == []


def test_the_row_is_read_from_the_name_of_the_function() -> None:
    assert rows_of("test_1_45_a_lone_surrogate") == [(1, 45)]
    assert rows_of("test_2_03_keys") == [(2, 3)]
    assert rows_of("test_1_54_and_1_55_a_function") == [(1, 54), (1, 55)]
    assert rows_of("test_1_45_") == []
    assert rows_of("test_20_000_rollouts") == []
    assert rows_of("test_every_row_1_2_is") == []


def test_tests_are_found_where_they_are(tmp_path: Path) -> None:
    code = "class TestX:\n    async def test_1_07_in_a_class(self): ...\n\ndef test_2_01_a(): ...\n"
    (tmp_path / "test_some.py").write_text(code)
    (tmp_path / "other.py").write_text("def test_1_01_not_collected(): ...\n")
    found = found_by_row(tmp_path)
    assert found == {
        (1, 7): ["test_some.py::test_1_07_in_a_class"],
        (2, 1): ["test_some.py::test_2_01_a"],
    }
    text = report(found)
    assert "NOT TESTED" in text
    assert "2 of the" in text
