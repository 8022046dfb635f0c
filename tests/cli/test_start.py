import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.cli.pod.listed import IN_PODS

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("command", IN_PODS)
def test_what_runs_in_every_pod_needs_none_of_the_rest(command):
    heavy = ["click", "rich", "grpc", "aiohttp", "yaml", "pyroute2", "google.protobuf", "weft.cli.main"]
    code = (
        f"import sys\nsys.argv[1:] = [{command!r}, *sys.argv[1:]]\nfrom weft.cli.start import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    more = {
        "iptables": ["--dry-run", "-i", "*"],
        "redirect": ["--timeout", "0", "-i", "*"],
        "drain": ["0s"],
        "clean": ["/nonexistent"],
        "wait": ["0s", "--redirect", "--timeout", "0", "-i", "*"],
    }[command]
    found = subprocess.run(
        [sys.executable, "-c", code, *more], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert found.stdout.splitlines()[-1] == "[]"


def test_every_other_command_is_found_as_before():
    found = subprocess.run(
        [sys.executable, "-m", "weft.cli", "--version"], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert found.stdout.startswith("weft ")


@pytest.mark.parametrize(
    ("command", "collects"), [("diff", False), ("--help", False), ("control", True), ("node", True), ("up", True)]
)
def test_a_short_command_runs_no_garbage_collection(command, collects):
    code = (
        "import gc, sys\nusual = gc.get_threshold()[0]\nimport weft.cli.main as every\n"
        "every.main = lambda: print(gc.get_threshold()[0] == usual)\n"
        f"sys.argv[1:] = [{command!r}]\nfrom weft.cli.start import main\nmain()\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert found.stdout.split() == [str(collects), "True", "True"]  # and nothing is freed at the end


@pytest.mark.parametrize("command", [["--help"], ["crds"], ["version"]])
def test_a_full_disk_is_an_error_and_no_traceback(command):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "weft.cli", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )
    said = "error: cannot write: No space left on device\nhint: free space on the disk that standard output is written to, or redirect it elsewhere\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("command", ["crds", "--help", "ps --mesh nobodys", "nothing-such"])
def test_a_closed_output_stream_does_not_matter(closed, command):
    """Python's sys.stdout or sys.stderr is None then."""
    weft = f"{sys.executable} -m weft.cli {command}"
    usual, done = (
        subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=ENVIRONMENT, check=False)
        for line in (weft, f"{weft} {closed}")
    )
    assert done.returncode == usual.returncode
    assert done.stderr == ("" if "2>" in closed else usual.stderr)


def test_an_interrupt_before_a_command_starts_gives_no_traceback():
    code = (
        "import sys, weft.cli.start as start\n"
        "def interrupted(): raise KeyboardInterrupt\n"
        "start._start = interrupted\nsys.argv[1:] = ['diff']\nstart.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_closed_pipe_gives_no_error_message():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "weft.cli", "crds"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(writing)
    assert done.stderr == b""


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_no_colours_if_its_owner_wants_none(tmp_path, no_color, coloured):
    (tmp_path / "a.yaml").write_text(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: b}\n"
        "spec: {hosts: [a], http: [{route: [{destination: {host: nowhere}}]}]}\n"
    )
    ours, theirs = os.openpty()
    subprocess.run(
        [sys.executable, "-m", "weft.cli", "analyze", str(tmp_path)],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, "NO_COLOR": no_color, "TERM": "xterm-256color"},
        check=False,
    )
    os.close(theirs)
    said = os.read(ours, 65536)
    os.close(ours)
    assert b"VirtualService b/a" in said and (b"\x1b[" in said) is coloured


@pytest.mark.parametrize(("options", "shown"), (((), False), (("-W", "default"), True)))
def test_warnings_of_python_are_shown_only_where_they_are_asked_for(options, shown):
    """A command that emits a warning, as a library may."""
    program = (
        "import sys, warnings\n"
        "from weft.cli import start\n"
        "start._start = lambda: warnings.warn('a deprecated call', UserWarning)\n"
        "sys.argv = ['weft', 'validate']\n"
        "start.main()\n"
    )
    done = subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True, check=True)
    assert ("a deprecated call" in done.stderr) is shown
