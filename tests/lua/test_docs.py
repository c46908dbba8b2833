"""The page about the store says what the code says."""

from tests.lua.docs import PAGE, render


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == render(page), "run `python -m tests.lua.docs`"
