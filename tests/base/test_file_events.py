import threading
import time

import pytest
from watchfiles import Change

from weft.base.file_events import FileEvents


@pytest.fixture
def stopped():
    return threading.Event()


def test_events_count_from_the_start_on_and_name_the_path(tmp_path, stopped):
    (tmp_path / "sub").mkdir()
    events = FileEvents([str(tmp_path), str(tmp_path / "sub")], stopped)
    (tmp_path / "b").mkdir()
    assert (Change.added, str(tmp_path / "b")) in events.wait(20)
    (tmp_path / "sub/a").write_text("a")
    assert (Change.added, str(tmp_path / "sub/a")) in events.wait(20)
    events.close()


def test_directories_inside_a_watched_directory_are_not_watched(tmp_path, stopped):
    (tmp_path / "sub").mkdir()
    events = FileEvents([str(tmp_path)], stopped)
    (tmp_path / "sub/a").write_text("a")
    (tmp_path / "b").write_text("b")
    assert {path for _, path in events.wait(20)} == {str(tmp_path / "b")}
    events.close()


def test_nothing_comes_where_nothing_happens_and_a_stop_is_prompt(tmp_path, stopped):
    events = FileEvents([str(tmp_path)], stopped)
    assert events.wait(0.05) == set()
    threading.Timer(0.1, stopped.set).start()
    began = time.monotonic()
    assert events.wait(60) == set()
    assert time.monotonic() - began < 30
    assert events.wait(60) == set()


def test_a_directory_that_is_not_there_is_an_error(tmp_path, stopped):
    with pytest.raises(FileNotFoundError):
        FileEvents([str(tmp_path / "none")], stopped)
