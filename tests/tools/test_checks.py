"""The reference page is up to date with the table of checks."""

import importlib.util
from pathlib import Path

from weft.analyze.checks import CHECKS

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "checks.py"


def test_the_page_has_every_check_and_is_up_to_date_with_the_table():
    found = importlib.util.spec_from_file_location("checks_page", TOOL)
    tool = importlib.util.module_from_spec(found)
    found.loader.exec_module(tool)
    assert tool.PAGE.read_text() == tool.page(), "run: make reference"
    assert all(f"### {code}\n" in tool.page() for code in CHECKS)
