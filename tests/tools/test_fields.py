"""The page of traffic fields says what the readers do and the tests show."""

import pytest

from tools import fields


def test_the_page_is_what_readers_and_tests_say_now():
    assert fields.PAGE.read_text() == fields.page(), "run: make reference"


@pytest.mark.parametrize("mark", list(fields.marks(fields.ROOT / "tests")), ids=lambda mark: mark.test)
def test_a_mark_names_fields_that_there_are(mark):
    assert set(mark.fields) <= fields.fates(mark.kind).keys()


def test_a_mark_is_found_with_its_test(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        '@proves("VirtualService", "spec.hosts")\nasync def test_hosts_decide():\n    pass\n'
    )
    page = fields.page(tmp_path / "tests")
    assert "| `spec.hosts` | on the wire: [hosts decide](../tests/test_one.py) |" in page
    assert "| `spec.http[].timeout` | acted on; no test on the wire yet |" in page
