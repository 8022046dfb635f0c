import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from weft.base.problem import Problem, Where
from weft.cli.command import load
from weft.cli.commands import COMMANDS
from weft.cli.main import Commands, app

LISTED = [command for commands in COMMANDS.values() for command in commands if not command.hidden]


def run(*arguments):
    return CliRunner().invoke(app, arguments, prog_name="weft")


def test_help_lists_every_command_under_what_a_person_wants():
    listing = run("--help").stdout.partition("A mesh on this machine:")[2]
    listed = re.findall(r"^  ([a-z-]+) ", listing, re.MULTILINE)
    assert listed == [command.name for command in LISTED]


def test_no_command_shows_the_help():
    assert "A mesh on this machine:" in run().output


@pytest.mark.parametrize("command", LISTED, ids=lambda command: command.name)
def test_a_commands_line_is_the_first_sentence_of_its_own_help(command):
    assert load(command).get_short_help_str(1000) == command.line


@pytest.mark.parametrize("command", [command.name for command in LISTED])
def test_each_commands_help_teaches_with_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: weft {command}" in result.stdout


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant():
    result = run("stauts")
    assert result.exit_code == 2
    assert "status" in result.stderr
    assert result.stdout == ""


def test_a_word_that_is_like_no_command_is_not_taken_for_one():
    result = run("bogus")
    assert result.exit_code == 2
    assert result.stderr == "error: there is no command `bogus`\nhint: list them with: weft --help\n"


def test_a_mistyped_option_is_a_usage_error():
    result = run("up", "--detatch")
    assert result.exit_code == 2
    assert "--detach" in result.stderr


def test_version_is_an_option_too():
    assert run("--version").stdout.startswith("weft ")


def test_an_error_with_a_problem_is_printed_with_its_hint_and_no_traceback(monkeypatch):
    class TestError(Exception):
        problem = Problem(Where(object="namespace x"), "cannot be made", "run as root")

    def fails() -> None:
        raise TestError

    monkeypatch.setattr("weft.cli.version.print_here", fails)
    result = run("--version")
    assert result.exit_code == 1
    assert result.stderr == "error: namespace x: cannot be made\nhint: run as root\n"


def test_a_defect_is_not_dressed_up_as_a_problem():
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(_broken(), [], catch_exceptions=False)


def _broken():
    import typer

    broken = typer.Typer(cls=Commands)

    @broken.callback(invoke_without_command=True)
    def main() -> None:
        raise ZeroDivisionError

    return broken


def test_help_needs_none_of_the_heavy_modules():
    heavy = ["rich", "msgspec", "grpc", "aiohttp", "asyncio", "yaml", "pyroute2", "google.protobuf", "weft.local"]
    code = f"import sys, weft.cli.main; print([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "[]"


def test_help_itself_needs_none_of_them_either():
    code = (
        "import sys\nfrom weft.cli.main import app\n"
        "try:\n    app(['up', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('rich', 'msgspec', 'asyncio') if name in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stderr.strip() == "[]"


@pytest.mark.root
@pytest.mark.parametrize("command", [["ps"], ["status"], ["logs", "talker-0"], ["exec"]])
def test_asking_a_mesh_needs_none_of_what_running_one_needs(weft, mesh, command):
    heavy = ["aiohttp", "asyncio", "dns", "google.protobuf", "grpc", "pyroute2", "yaml", "weft.local.engine"]
    if command == ["exec"]:  # `exec` becomes another program, so what it loads is looked at without it
        asks = "import weft.cli.choose, weft.local.client"
    else:
        asks = (
            f"from weft.cli.main import app\ntry:\n    app({[*command, '--mesh', mesh]})\nexcept SystemExit:\n    pass"
        )
    code = f"import sys\n{asks}\nprint([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=weft.environment)
    assert found.stderr.strip() == "[]"
