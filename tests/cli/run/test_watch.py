import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest

pytestmark = pytest.mark.root


def start(weft, *arguments, **options):
    command = [sys.executable, "-m", "weft.cli", "status", "--watch", *arguments]
    return subprocess.Popen(command, env=weft.environment, **options)


def test_elsewhere_than_on_a_terminal_it_prints_lines_until_ctrl_c_and_the_mesh_runs_on(weft, mesh):
    process = start(weft, mesh, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert next(line for line in process.stdout if line.startswith("all ")) == "all 3 pods are ready or completed\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    assert weft("status", mesh).returncode == 0


def test_on_a_terminal_it_draws_what_fits_and_again_and_again(weft, mesh):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = start(weft, "--mesh", mesh, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    seen = b""
    while seen.count(b"Ctrl-C ends this view; the mesh continues to run") < 3:
        seen += os.read(ours, 65536)
    assert b"WORKLOAD" in seen and b"talker" in seen
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    os.close(ours)


def test_it_ends_with_the_mesh(weft, mesh_directory):
    name = f"watched-{os.getpid()}"
    try:
        assert weft("up", mesh_directory, "--name", name, "--detach").returncode == 0
        process = start(weft, name, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        next(line for line in process.stdout if line.startswith("all "))
    finally:
        weft("down", name)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, f"mesh {name} has ended\n")


def test_a_mesh_that_does_not_run_is_an_error(weft):
    done = weft("status", "--watch", "nosuch")
    assert done.returncode == 1 and "error: no mesh named `nosuch` is running" in done.stderr
