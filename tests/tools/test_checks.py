"""The reference page is up to date with the table of checks."""

import importlib.util
from pathlib import Path

from tools.istio_checks import ELSEWHERE, NOT_APPLICABLE, TITLES

from weft.analyze.checks import CHECKS

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "checks.py"


def test_the_page_has_every_check_and_is_up_to_date_with_the_table():
    found = importlib.util.spec_from_file_location("checks_page", TOOL)
    tool = importlib.util.module_from_spec(found)
    found.loader.exec_module(tool)
    assert tool.PAGE.read_text() == tool.page(), "run: make reference"
    assert all(f"### {code}\n" in tool.page() for code in CHECKS)


def test_every_code_of_istioctl_is_in_the_table_once_and_no_other_is_named():
    named = {code for check in CHECKS.values() for code in check.istio}
    page = TOOL.parent.parent.joinpath("docs", "reference", "checks.md").read_text()
    assert len(TITLES) == 68 and all(page.count(f"| {code} |") == 1 for code in TITLES)
    older = {"IST0105", "IST0113", "IST0119", "IST0122"}  # codes of earlier releases of istioctl
    assert named - older <= TITLES.keys()
    assert not (named | ELSEWHERE.keys()) & NOT_APPLICABLE.keys() and not named & ELSEWHERE.keys()
