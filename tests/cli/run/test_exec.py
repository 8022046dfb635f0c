import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root


def test_passes_input_output_and_exit_code_through(weft, mesh):
    result = weft("exec", "talker", "--", "sh", "-c", "read word; echo out $word; echo err >&2; exit 7", input="in\n")
    assert (result.stdout, result.stderr, result.returncode) == ("out in\n", "err\n", 7)


def test_runs_as_the_app_does_not_as_root(weft, mesh):
    result = weft("exec", "talker-1", "--", "sh", "-c", "id -u; echo $POD_NAME $GREETING")
    user, words = result.stdout.splitlines()
    assert int(user) >= 10_000
    assert words == "talker-1 hello"


def test_runs_in_the_pods_network(weft, mesh):
    inside = weft("exec", "talker-0", "--", "readlink", "/proc/self/ns/net").stdout
    assert inside.strip() != str(Path("/proc/self/ns/net").readlink())


def test_the_two_dashes_may_be_left_out(weft, mesh):
    assert weft("exec", "talker-0", "echo", "-n", "--mesh").stdout == "--mesh"


def test_a_terminal_stays_a_terminal(weft, mesh):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "weft.cli", "exec", "talker-0", "--", "sh", "-c", "test -t 0 && test -t 1"]
    assert subprocess.run(command, stdin=theirs, stdout=theirs, env=weft.environment, check=False).returncode == 0
    os.close(ours)
    os.close(theirs)


def test_a_program_that_is_not_there_is_what_a_shell_calls_127(weft, mesh):
    result = weft("exec", "talker-0", "--", "no-such-program")
    assert result.returncode == 127
    assert result.stderr.startswith("error: pod shop/talker-0: program `no-such-program` is not in ")
    assert "hint: " in result.stderr


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_without_a_command_it_is_a_shell(weft, mesh, dashes):
    result = weft("exec", "talker-0", *dashes, input="echo $POD_NAME; exit 4\n")
    assert (result.stdout, result.returncode) == ("talker-0\n", 4)


def test_an_option_in_the_place_of_the_command_is_refused_before_anything_runs(weft):
    result = weft("exec", "web", "--mesh", "absent")
    assert result.returncode == 2
    assert "options go before the target" in result.stderr
