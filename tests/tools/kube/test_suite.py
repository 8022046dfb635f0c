"""Both halves run at once, the output of both is printed, and the suite fails if either half fails."""

import os
import signal
import subprocess
import sys

import pytest
from tools.kube.suite import run

from eventually import eventually_blocking

# Each waits until it has seen the other one start.
MEET = """
import pathlib, sys, time
pathlib.Path(sys.argv[1]).touch()
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.01)
print(sys.argv[1].rpartition("/")[2], "has met the other")
"""


def python(program, *arguments):
    return [sys.executable, "-c", program, *map(str, arguments)]


def test_both_halves_run_at_once_and_their_output_is_printed_in_order(tmp_path, capfd):
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(python(MEET, first, second), python(MEET, second, first)) == 0
    assert capfd.readouterr().out.splitlines() == ["first has met the other", "second has met the other"]


@pytest.mark.parametrize(("first", "second", "code"), [(0, 0, 0), (1, 0, 1), (0, 2, 2), (1, 2, 1), (-9, 0, -9)])
def test_the_suite_fails_if_either_half_fails(first, second, code):
    program = "import os, sys; code = int(sys.argv[1]); os.kill(os.getpid(), 9) if code < 0 else sys.exit(code)"
    assert run(python(program, first), python(program, second)) == code


# Cleans up slowly when it is interrupted.
LONG = """
import pathlib, sys, time
file = pathlib.Path(sys.argv[1])
try:
    file.touch()
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(0.5)
    print(file.name, "is clean", flush=True)
    sys.exit(2)
"""


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_stopping_the_suite_stops_both_halves_and_both_clean_up(tmp_path, how):
    first, second = tmp_path / "first", tmp_path / "second"
    whole = f"""
import sys
from tools.kube.suite import run
sys.exit(run({python(LONG, first)!r}, {python(LONG, second)!r}))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        python(whole), env=environment, start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as process:

        def both_run():
            assert process.poll() is None
            return first.exists() and second.exists()

        eventually_blocking(both_run)
        if how == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.terminate()
        said, _ = process.communicate(timeout=60)
    assert said.splitlines() == ["first is clean", "second is clean"]
    assert process.returncode == 2
