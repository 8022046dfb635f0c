import subprocess
import sys

import pytest

pytestmark = pytest.mark.root


def test_prints_what_a_pod_printed(weft, mesh):
    assert weft("logs", "job").stdout == "done\n"
    assert weft("logs", "talker-1", "--mesh", mesh).stdout.startswith("talker-1 speaks\n")


def test_lines_of_several_pods_are_prefixed_with_their_names(weft, mesh):
    lines = weft("logs", "talker").stdout.splitlines()
    assert "talker-0: talker-0 speaks" in lines
    assert "talker-1: talker-1 speaks" in lines


def test_tail_limits_the_number_of_lines(weft, mesh):
    assert weft("logs", "--tail", "0", "talker-0").stdout == ""
    assert len(weft("logs", "--tail", "1", "talker-0").stdout.splitlines()) == 1


def test_the_proxys_lines_are_kept_apart(weft, mesh):
    assert "speaks" not in weft("logs", "--proxy", "talker-0").stdout


@pytest.mark.parametrize("target", ["talker-0", "talker"])
def test_follows_until_interrupted(weft, mesh, target):
    command = [sys.executable, "-m", "weft.cli", "logs", "-f", "--tail", "0", target]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=weft.environment)
    assert process.stdout.readline().endswith("tick\n")
    assert process.stdout.readline().endswith("tick\n")
    process.send_signal(2)
    assert process.communicate(timeout=20)[1] == ""
    assert process.returncode == 0


def test_a_mistyped_workload_is_an_error_with_a_hint(weft, mesh):
    result = weft("logs", "tlaker")
    assert result.returncode == 1
    assert "hint: did you mean `talker`?" in result.stderr
