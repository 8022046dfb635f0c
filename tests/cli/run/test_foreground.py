import asyncio
import contextlib
import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text

from cli.statuses import mesh as status_of
from cli.statuses import pod, workload
from weft.cli.run import foreground

pytestmark = pytest.mark.root


def namespaces(name):
    directory = Path("/run/netns")
    return [each.name for each in directory.iterdir() if name in each.name] if directory.exists() else []


@pytest.fixture
def name(weft):
    name = f"fore-{os.getpid()}"
    yield name
    weft("down", name)


def start(weft, *arguments, **options):
    command = [sys.executable, "-m", "weft.cli", "up", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(command, env=weft.environment, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_prints_plain_lines_and_ends_clean_on_a_signal(weft, mesh_directory, name, number):
    process = start(weft, mesh_directory, "--name", name)
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith("all 3 pods"):
            break
    assert "shop/talker-1: Ready" in lines
    assert not any("\x1b" in line for line in lines)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert said.endswith(f"mesh {name} is gone\n")
    assert namespaces(name) == []


def test_a_signal_in_the_middle_of_the_start_leaves_nothing(weft, mesh_directory, name):
    process = start(weft, mesh_directory, "--name", name)
    while not namespaces(name):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert namespaces(name) == []


def test_closing_stdout_ends_the_mesh(weft, mesh_directory, name):
    process = start(weft, mesh_directory, "--name", name)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=30) == 0, process.stderr.read()
    assert namespaces(name) == []


@pytest.mark.parametrize("lines", [0, 2])
def test_closing_the_shared_pipe_of_stdout_and_stderr_ends_the_mesh(weft, mesh_directory, name, lines):
    process = start(weft, mesh_directory, "--name", name, stderr=subprocess.STDOUT)
    for _ in range(lines):
        process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert namespaces(name) == []
    assert not Path(weft.environment["WEFT_RUN_DIR"], name).exists()


def test_a_directory_without_objects_is_reported_and_watched(weft, tmp_path, mesh_directory, name):
    tmp_path.chmod(0o755)
    process = start(weft, tmp_path, "--name", name)
    assert process.stdout.readline() == f"no objects in {tmp_path} yet; waiting for files\n"
    (tmp_path / "mesh.yaml").write_text((mesh_directory / "mesh.yaml").read_text())
    assert any(line.startswith("all 3 pods") for line in process.stdout)
    process.terminate()
    process.communicate(timeout=30)


def test_a_fatal_error_ends_the_mesh_cleanly_with_a_nonzero_exit_code(weft, mesh_directory, name):
    code = (
        "import sys\nfrom weft.cli.main import main\nfrom weft.local.virtual_addresses import VirtualAddresses\n"
        "async def keep(self, namespace):\n    raise OSError('the kernel said no')\n"
        f"VirtualAddresses.keep = keep\nsys.argv = ['weft', 'up', {str(mesh_directory)!r}, '--name', {name!r}]\nmain()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=weft.environment)
    assert done.returncode == 1
    assert f"error: mesh {name} failed: OSError('the kernel said no')" in done.stderr
    assert namespaces(name) == []


def test_weft_down_ends_the_mesh_with_exit_code_zero(weft, mesh_directory, name):
    process = start(weft, mesh_directory, "--name", name)
    next(line for line in process.stdout if line.startswith("all 3 pods"))
    assert weft("down", name).returncode == 0
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said


def test_a_name_in_use_is_an_error_and_nothing_is_changed(weft, mesh, mesh_directory):
    process = start(weft, mesh_directory, "--name", mesh)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.startswith(f"error: a mesh named `{mesh}` is running already")
    assert said.splitlines()[-1].startswith("hint: ")


def test_a_problem_is_printed_once_with_its_line_and_again_when_it_is_solved(weft, tmp_path, mesh_directory, name):
    tmp_path.chmod(0o755)
    good = (mesh_directory / "mesh.yaml").read_text()
    (tmp_path / "mesh.yaml").write_text(good.replace("replicas: 2", "replicsa: 2"))
    process = start(weft, tmp_path, "--name", name, stderr=subprocess.STDOUT)
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "replicsa" in line and "solved" not in line:
            (tmp_path / "mesh.yaml").write_text(good)
        if line.startswith("solved: "):
            break
    assert sum("did you mean `replicas`?" in line for line in seen) == 1
    assert f"{tmp_path}/mesh.yaml:7: " in "".join(seen)
    process.terminate()
    process.communicate(timeout=30)


def test_on_a_terminal_it_draws_the_view_and_ctrl_c_ends_it(weft, mesh_directory, name):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    process = start(
        weft, mesh_directory, "--name", name, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    drawn = _read_until(ours, "3/3 pods settled")
    assert "WORKLOAD" in drawn
    assert "Ctrl-C ends the mesh" in drawn
    process.send_signal(signal.SIGINT)
    ending = _read_until(ours, f"mesh {name} is gone")
    assert "\x1b[?25h" in ending  # the cursor is back
    assert process.wait(timeout=30) == 0
    os.close(ours)


def _read_until(descriptor, words, seconds=30):
    text, deadline = "", time.monotonic() + seconds
    while words not in text:
        assert time.monotonic() < deadline, text[-2000:]
        if select.select([descriptor], [], [], 0.2)[0]:
            with contextlib.suppress(OSError):
                text += os.read(descriptor, 65536).decode(errors="replace")
    return text


def test_tips_that_have_scrolled_by_are_not_shown_again(monkeypatch):
    views = [Text("\n".join("x" * rows)) for rows in (5, 30, 5)]
    shown = []

    class Terminal(Console):
        def __init__(self, **options):
            super().__init__(file=io.StringIO(), force_terminal=True, width=120, height=20)
            shown.append(self)

    async def three_times(ended, seconds):
        return not views

    monkeypatch.setattr(foreground, "Console", Terminal)
    monkeypatch.setattr(foreground, "_passes", three_times)
    monkeypatch.setattr(foreground, "mesh_view", lambda status, height=None: Text() if height else views.pop(0))
    status = status_of(workload("catalog", pod("catalog")))
    engine = SimpleNamespace(status=lambda: status)
    asyncio.run(foreground._draw(engine, asyncio.Event(), lambda status: [("Try this:", ["command"])]))
    frames = shown[0].file.getvalue().split("Ctrl-C ends the mesh")
    # The tips are part of the small view; they are printed once above the big view, and so are not in the last frames.
    assert ["Try this:" in frame for frame in frames] == [True, True, False, False, False]
