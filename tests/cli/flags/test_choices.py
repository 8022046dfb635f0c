import pytest
import typer
from typer.testing import CliRunner

from weft.cli.flags.choices import one_of
from weft.cli.main import app


def test_a_value_is_taken_in_any_case_and_leaves_as_it_is_listed():
    chosen = one_of("inbound", "HTTP+TCP")
    assert (chosen("INBOUND"), chosen("http+tcp"), chosen("")) == ("inbound", "HTTP+TCP", "")
    with pytest.raises(typer.BadParameter, match="`in` is none of: inbound, HTTP"):
        chosen("in")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("pc clusters web --direction sideways", "`sideways` is none of: inbound, outbound"),
        ("pc all web --direction sideways", "`sideways` is none of: inbound, outbound"),
        ("pc endpoints web --status nonsense", "`nonsense` is none of: healthy, unhealthy, draining"),
        ("pc listeners web --type X", "`X` is none of: HTTP, TCP, HTTP+TCP"),
        ("pc listeners web --port -4", "greater than or equal to 0"),
        ("pc clusters web --port 70000", "less than or equal to 65535"),
        ("history --last -5", "greater than or equal to 0"),
    ],
)
def test_a_value_that_fits_nothing_is_a_usage_error_that_says_what_would(arguments, said):
    result = CliRunner().invoke(app, arguments.split(), prog_name="weft")
    assert result.exit_code == 2 and said in result.stderr, result.stderr
    assert result.stdout == ""
