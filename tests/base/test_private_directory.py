import os
import stat

import pytest

from weft.base.private_directory import NotPrivate, make_private


@pytest.mark.root
def test_a_directory_of_others_or_open_to_them_is_not_taken(tmp_path):
    make_private(tmp_path / "a" / "own")
    assert stat.S_IMODE((tmp_path / "a" / "own").stat().st_mode) == 0o700
    make_private(tmp_path / "a" / "own")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "own")
    for name in ("open", "link"):
        with pytest.raises(NotPrivate):
            make_private(tmp_path / name)
    if os.geteuid() == 0:
        os.chown(tmp_path / "a" / "own", 65534, 65534)
        with pytest.raises(NotPrivate):
            make_private(tmp_path / "a" / "own")
