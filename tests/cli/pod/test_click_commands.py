import pytest
from click.testing import CliRunner

from weft.cli.main import app
from weft.cli.pod.listed import IN_PODS


@pytest.mark.parametrize("command", IN_PODS)
def test_they_are_commands_like_the_others_all_the_same(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Usage: weft {command}" in result.stdout
    assert f"  {command} " not in CliRunner().invoke(app, ["--help"]).stdout
