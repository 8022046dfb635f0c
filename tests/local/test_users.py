import subprocess

import pytest

from weft.local import users
from weft.local.error import LocalError
from weft.local.users import FIRST, LAST, WIDTH, free_users


def test_a_range_is_free_if_no_mesh_has_it_and_nothing_runs_as_it(monkeypatch):
    monkeypatch.setattr(users, "_running_users", lambda: {0, 1337, FIRST + WIDTH - 1, FIRST + 2 * WIDTH, 65_534})
    assert free_users(()) == range(FIRST + WIDTH, FIRST + 2 * WIDTH)
    assert free_users({FIRST + WIDTH}).start == FIRST + 3 * WIDTH


def test_the_error_has_a_hint_when_no_user_is_left():
    with pytest.raises(LocalError, match="weft down NAME"):
        free_users(range(FIRST, LAST, WIDTH))


@pytest.mark.root
def test_sees_what_runs():
    uid = LAST - 1
    sleeper = subprocess.Popen(["setpriv", f"--reuid={uid}", "--clear-groups", "sleep", "60"])
    try:
        while uid not in users._running_users():
            assert sleeper.poll() is None
        with pytest.raises(LocalError):
            free_users(range(FIRST, LAST - WIDTH, WIDTH))
    finally:
        sleeper.kill()
        sleeper.wait()
    assert free_users(range(FIRST, LAST - WIDTH, WIDTH)).stop == LAST
