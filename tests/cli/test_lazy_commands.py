"""Commands of a group are imported when they are called, and all groups report errors in the same way."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from weft.cli.commands import COMMANDS
from weft.cli.lazy_commands import LazyGroup, load
from weft.cli.main import app

EVERY = [command for commands in COMMANDS.values() for command in commands]


def run(*arguments):
    return CliRunner().invoke(app, arguments, prog_name="weft")


def with_its_own(command, words=()):
    words = (*words, command.name)
    made = load(command)
    yield words, command, made
    for listings in made.listings.values() if isinstance(made, LazyGroup) else ():
        for each in listings:
            yield from with_its_own(each, words)


SHOWN = [(words, command, made) for each in EVERY for words, command, made in with_its_own(each) if not each.hidden]


@pytest.mark.parametrize(("words", "command", "made"), SHOWN, ids=[" ".join(words) for words, _, _ in SHOWN])
def test_the_line_in_a_list_is_the_first_sentence_of_the_help(words, command, made):
    assert made.get_short_help_str(1000) == command.line


def test_a_group_lists_its_commands_and_loads_none_of_them():
    code = (
        "import sys\nfrom weft.cli.main import app\n"
        "try:\n    app(['x', '--help'])\nexcept SystemExit:\n    pass\n"
        "print('weft.cli.look.describe' in sys.modules, 'weft.cli.look.authz_check' in sys.modules, file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stderr.strip() == "False False"
    assert "Authorization: the policies in force at a pod." in found.stdout


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["pc", "clustrs"], "did you mean `clusters`?"),
        (["x", "authz", "chek"], "did you mean `check`?"),
        (["x", "bogus"], "list them with: weft x --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistyped_command_of_a_group_gets_a_hint(typed, hint):
    result = run(*typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: there is no command `{typed[-1]}`\nhint: {hint}\n"


def test_a_group_can_be_called_by_its_short_names():
    assert "Example: weft proxy-config secret" in run("pc", "s", "--help").stdout


def test_a_group_alone_shows_its_help():
    assert "tls-check" in run("authn").output
