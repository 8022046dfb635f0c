"""Programs of a killed run are ended by the next run; programs of a running one are not."""

import os
import subprocess
import sys

import msgspec
import pytest
from tools.kube.process import Record, runs

from tools.kube import left_over

RUN = """
import pathlib, sys, time
from tools.kube import left_over
from tools.kube.process import Program
with left_over.recorded() as records:
    Program("sleeper", ["sleep", "infinity"], pathlib.Path(sys.argv[1]), records=records).start()
    print(records, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other_run(monkeypatch, tmp_path):
    """Another process that has started a program: (the process, the folder of its records, the program's record)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        folder = left_over.place() / process.stdout.readline().strip().rpartition("/")[2]
        sleeper = msgspec.json.decode((folder / "sleeper.process").read_bytes(), type=Record)
        yield process, folder, sleeper
        process.kill()
    with left_over.recorded():
        assert not runs(sleeper)


def test_what_runs_is_left_alone_and_what_was_killed_is_cleaned_up(other_run):
    process, folder, sleeper = other_run
    with left_over.recorded() as own:
        assert runs(sleeper) and folder.exists() and own != folder
        process.kill()
        process.wait()
        assert runs(sleeper)  # it outlives its run
        with left_over.recorded():
            assert not runs(sleeper) and not folder.exists()
            assert own.exists()
    assert not own.exists()


def test_a_number_that_is_another_process_now_is_left_alone(other_run):
    process, folder, sleeper = other_run
    process.kill()
    process.wait()
    with subprocess.Popen(["sleep", "infinity"]) as stranger:
        stale = Record(pid=stranger.pid, began=1)
        (folder / "stranger.process").write_bytes(msgspec.json.encode(stale))
        with left_over.recorded():
            assert not runs(sleeper)
            assert stranger.poll() is None
        stranger.kill()
