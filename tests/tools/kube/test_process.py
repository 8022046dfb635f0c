"""Programs are identified by process id and start time, so that no other process is ever ended in their place."""

import os

import msgspec
import pytest
from tools.kube.process import Failed, Program, Record, record, runs


def test_another_process_with_the_same_number_is_not_taken_for_it():
    now = record(os.getpid())
    assert runs(now)
    assert not runs(Record(pid=now.pid, began=now.began - 1))


def test_is_found_and_ended_from_its_record_by_another_command(tmp_path):
    first = Program("sleeper", ["sleep", "infinity"], tmp_path)
    first.start()
    later = Program("sleeper", ["sleep", "infinity"], tmp_path)
    assert later.pid() == first.pid() != 0
    later.stop()
    assert first.pid() == 0
    with pytest.raises(Failed, match="sleeper"):
        first.check()


def test_a_stale_record_ends_nothing(tmp_path):
    stale = Record(pid=os.getpid(), began=1)
    (tmp_path / "sleeper.process").write_bytes(msgspec.json.encode(stale))
    Program("sleeper", ["sleep"], tmp_path).stop(kill=True)
    assert not (tmp_path / "sleeper.process").exists()


def test_the_error_shows_the_end_of_the_log_of_an_ended_program(tmp_path):
    program = Program("speaker", ["sh", "-c", "echo last words; exit 3"], tmp_path)
    program.start()
    program._child.wait()
    with pytest.raises(Failed, match=r"speaker exited with 3(.|\n)*last words"):
        program.check()
