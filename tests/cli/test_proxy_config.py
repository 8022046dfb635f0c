import pytest
from typer.testing import CliRunner

from weft.cli.main import app
from weft.cli.proxy_config import ALIASES


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), prog_name="weft")


@pytest.mark.parametrize(("name", "aliases"), ALIASES.items())
def test_each_command_goes_by_all_of_istioctls_names(name, aliases):
    for each in (name, *aliases):
        for group in ("proxy-config", "pc"):
            result = run(group, each, "--help")
            assert result.exit_code == 0, result.output
            assert f"Example: weft proxy-config {name}" in result.output


def test_help_lists_each_command_once():
    listing = run("pc", "--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listing.splitlines() if not line.startswith("    ")] == list(ALIASES)


def test_a_mistyped_command_is_a_usage_error():
    result = run("pc", "clustres")
    assert result.exit_code == 2 and "clustres" in result.stderr


def test_completion_knows_the_commands_of_the_group():
    environment = {"_WEFT_COMPLETE": "complete_bash", "COMP_WORDS": "weft pc cl", "COMP_CWORD": "2"}
    assert "clusters" in CliRunner().invoke(app, [], prog_name="weft", env=environment).stdout
