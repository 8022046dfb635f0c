from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from weft.local.access_log import writable
from weft.model.access_log import Encoding, FileLog, LogProvider
from weft.model.settings import Settings

pytestmark = pytest.mark.root


@pytest.fixture
def place():
    """A directory below /tmp, which every user may enter."""
    with tempfile.TemporaryDirectory(prefix="weft-access-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def refusal(path: object) -> str:
    log = FileLog(str(path), Encoding.JSON)
    settings, problems = writable(Settings(logs=(log,)))
    assert settings.logs == (() if problems else (log,))
    return problems[0].what if problems else ""


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/stderr", "/dev/null"])
def test_standard_streams_and_world_writable_devices_are_accepted(path):
    assert refusal(path) == ""


def test_a_directory_or_file_of_the_proxies_user_is_written_to(place):
    assert "UID 1337, may not write to" in refusal(place / "access.log")
    os.chown(place, 1337, 1337)
    assert refusal(place / "access.log") == ""
    (place / "access.log").write_text("")
    assert "may not write to" in refusal(place / "access.log")
    os.chown(place / "access.log", 1337, 1337)
    assert refusal(place / "access.log") == ""


def test_an_unwritable_access_log_is_rejected_with_the_reason(place):
    assert "is a directory" in refusal(place)
    assert "no such file or directory" in refusal(place / "none" / "access.log")
    assert "not an absolute path" in refusal("access.log")
    (place / "closed").mkdir(mode=0o700)
    assert f"the proxies' user, UID 1337, may not enter {place}/closed" in refusal(place / "closed" / "access.log")


def test_access_log_providers_with_unwritable_files_are_removed():
    good, bad = FileLog("/dev/null"), FileLog("/root/access.log")
    providers = (LogProvider("good", good), LogProvider("bad", bad), LogProvider("elsewhere"))
    settings, problems = writable(Settings(logs=(bad, good), log_providers=providers))
    assert settings.logs == (good,)
    assert (settings.logs_of("good"), settings.logs_of("bad")) == ((good,), ())
    assert [problem.what.endswith("nothing is written to /root/access.log") for problem in problems] == [True]
