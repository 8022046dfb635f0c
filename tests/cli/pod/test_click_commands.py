import pytest
from click.testing import CliRunner

from weft.cli.main import app
from weft.cli.pod.listed import IN_PODS


@pytest.mark.parametrize("command", IN_PODS)
def test_commands_of_pods_have_help_and_are_not_listed(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Usage: weft {command}" in result.stdout
    assert f"  {command} " not in CliRunner().invoke(app, ["--help"]).stdout
