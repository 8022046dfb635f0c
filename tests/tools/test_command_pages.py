"""The pages in docs/reference are up to date with the help of the commands."""

from tools import command_pages


def test_the_pages_are_up_to_date_with_the_commands():
    for file, text in command_pages.texts().items():
        assert file.read_text() == text, f"{file.name} is old; run: make reference"


def test_no_page_is_left_of_a_command_that_is_gone():
    generated = {file.name for file in command_pages.texts()}
    pages = {file.name for file in command_pages.PAGES.glob("*.md") if "make reference" in file.read_text()}
    assert pages == generated
