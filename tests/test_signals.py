"""The suite does not depend on the signals that its parent ignores."""

import signal
import subprocess
import sys

import pytest

CTRL_C = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"


def test_programs_that_tests_start_can_be_interrupted():
    done = subprocess.run([sys.executable, "-c", CTRL_C], capture_output=True, text=True, timeout=50)
    assert "KeyboardInterrupt" in done.stderr


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "with a worker"])
def test_they_can_if_the_parent_of_the_suite_ignores_sigint(workers):
    test = f"{__file__}::{test_programs_that_tests_start_can_be_interrupted.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *workers, test],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
