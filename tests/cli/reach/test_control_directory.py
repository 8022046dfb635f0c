import socket
from pathlib import Path

import pytest

from weft.cli.reach import control_directory
from weft.cli.reach.control_directory import PAGES, answers, default_place, is_place, running_place


def test_a_path_is_no_meshs_name():
    assert is_place("./control") and is_place("/run/weft/.control")
    assert not is_place("shop")


@pytest.mark.parametrize(
    ("environment", "user", "place"),
    [
        ({"WEFT_RUN_DIR": "/tmp/w"}, 1000, "/tmp/w/.control"),
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, 0, "/run/weft/.control"),
        ({"XDG_RUNTIME_DIR": "/run/user/1000"}, 1000, "/run/user/1000/weft/.control"),
    ],
)
def test_each_user_has_a_control_directory(monkeypatch, environment, user, place):
    for name in ("WEFT_RUN_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(control_directory.os, "geteuid", lambda: user)
    assert default_place() == Path(place)


def test_a_user_without_a_run_directory_has_no_default_directory(monkeypatch):
    for name in ("WEFT_RUN_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(control_directory.os, "geteuid", lambda: 1000)
    assert default_place() is None and running_place() is None


def test_a_control_plane_runs_only_if_its_socket_accepts_connections(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_RUN_DIR", ".")
    Path(".control").mkdir()
    assert running_place() is None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f".control/{PAGES}")
        assert not answers(Path(".control"))
        server.listen()
        assert running_place() == Path(".control")
