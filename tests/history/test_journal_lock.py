import os
import subprocess
import sys

import pytest

from weft.history.journal_lock import FILE, JournalLock, JournalTaken

OTHER = """
import sys
from pathlib import Path
from weft.history.journal_lock import JournalLock, JournalTaken
try:
    JournalLock(Path(sys.argv[1]))
except JournalTaken as taken:
    print(taken.problem.what, "|", taken.problem.hint)
"""


def test_another_process_gets_the_pid_of_the_lock_owner(tmp_path):
    lock = JournalLock(tmp_path)
    run = [sys.executable, "-c", OTHER, str(tmp_path)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert f"written by another process, pid {os.getpid()}" in said and "--history DIR" in said
    lock.close()
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == ""


def test_a_closed_lock_can_be_taken_again(tmp_path):
    first = JournalLock(tmp_path)
    with pytest.raises(JournalTaken):
        JournalLock(tmp_path)
    first.close()
    JournalLock(tmp_path).close()


def test_without_a_lock_file_it_continues(tmp_path):
    JournalLock(tmp_path / "nowhere").close()
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    JournalLock(tmp_path).close()
    assert not (tmp_path / "elsewhere").exists()
