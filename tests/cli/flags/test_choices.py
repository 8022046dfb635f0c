import click
import pytest
from click.testing import CliRunner

from weft.cli.flags.choices import OneOf
from weft.cli.main import app


def test_a_value_is_taken_in_any_case_and_leaves_as_it_is_listed():
    chosen = OneOf("inbound", "HTTP+TCP")
    assert (chosen("INBOUND"), chosen("http+tcp"), chosen("")) == ("inbound", "HTTP+TCP", "")
    with pytest.raises(click.BadParameter, match="`in` is not one of: inbound, HTTP"):
        chosen("in")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("pc clusters web --direction sideways", "`sideways` is not one of: inbound, outbound"),
        ("pc all web --direction sideways", "`sideways` is not one of: inbound, outbound"),
        ("pc endpoints web --status nonsense", "`nonsense` is not one of: healthy, unhealthy, draining"),
        ("pc listeners web --type X", "`X` is not one of: HTTP, TCP, HTTP+TCP"),
        ("pc listeners web --port -4", "not in the range 0<=x<=65535"),
        ("pc clusters web --port 70000", "not in the range 0<=x<=65535"),
        ("history --last -5", "not in the range x>=0"),
    ],
)
def test_an_invalid_value_is_a_usage_error_that_lists_valid_ones(arguments, said):
    result = CliRunner().invoke(app, arguments.split(), prog_name="weft")
    assert result.exit_code == 2 and said in result.stderr, result.stderr
    assert result.stdout == ""


def test_the_words_are_completed():
    assert [item.value for item in OneOf("inbound", "outbound").shell_complete(None, None, "in")] == ["inbound"]
