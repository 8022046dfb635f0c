import os
import subprocess
import sys

import pytest

from weft.cli.start import IN_PODS, run

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("command", IN_PODS)
def test_what_runs_in_every_pod_needs_none_of_the_rest(command):
    heavy = ["typer", "rich", "grpc", "aiohttp", "yaml", "pyroute2", "google.protobuf", "weft.cli.main"]
    code = (
        f"import sys\nsys.argv[1:] = [{command!r}, *sys.argv[1:]]\nfrom weft.cli.start import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    more = {
        "iptables": ["--dry-run", "-i", "*"],
        "redirect": ["--timeout", "0", "-i", "*"],
        "drain": ["0s"],
        "wait": ["0s", "--redirect", "--timeout", "0", "-i", "*"],
    }[command]
    found = subprocess.run(
        [sys.executable, "-c", code, *more], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert found.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", IN_PODS)
def test_each_has_help_with_an_example(command, capsys):
    assert run(command, ["--help"]) == 0
    assert f"Example: weft {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", IN_PODS)
def test_they_are_commands_like_the_others_all_the_same(command):
    from typer.testing import CliRunner

    from weft.cli.main import app

    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Usage: weft {command}" in result.stdout
    assert f"  {command} " not in CliRunner().invoke(app, ["--help"]).stdout


def test_every_other_command_is_found_as_before():
    found = subprocess.run(
        [sys.executable, "-m", "weft.cli", "--version"], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert found.stdout.startswith("weft ")
