"""The plan of mounts, carried out in a real, private mount namespace."""

import os
import subprocess

import pytest

from weft.netns.namespace import NetworkError
from weft.netns.view import Laid, View, closed_ancestors, may, mount_lines

pytestmark = pytest.mark.root

UID, GID = 4242, 4243


@pytest.fixture
def tree(tmp_path, make_namespace):
    """Files below directories that only root may enter."""
    make_namespace()

    def make(**files):
        for name, mode in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.name)
            path.chmod(mode)
        return tmp_path

    return make


def seen(view, *commands):
    """Return what an unprivileged user sees in the view."""
    look = f"exec setpriv --reuid={UID} --regid={GID} --clear-groups sh -c '{'; '.join(commands)}'"
    script = "\n".join([*mount_lines(view, UID, GID), look])
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout + done.stderr).split("\n")[:-1]


def test_a_visible_directory_is_reached_and_its_neighbours_are_not(tree):
    root = tree(app__main=0o644, other__main=0o644)
    for directory in ("app", "other"):
        (root / directory).chmod(0o755)
    view = View(visible=(str(root / "app"),))
    assert seen(view, f"cat {root}/app/main; echo; ls {root}") == ["main", "app"]
    assert "Permission denied" in seen(View(), f"cat {root}/app/main")[0]


def test_a_visible_directory_that_is_itself_closed_shows_its_entries(tree):
    root = tree(app__main=0o644, app__key=0o600, app__deep__file=0o644)
    (root / "app").chmod(0o700)
    (root / "app/deep").chmod(0o755)
    (root / "app/dangling").symlink_to("/no/such")
    view = View(visible=(str(root / "app"),))
    shown = seen(view, f"ls {root}/app; cat {root}/app/main {root}/app/deep/file; echo")
    assert shown == ["deep", "key", "main", "mainfile"]
    assert "Permission denied" in seen(view, f"cat {root}/app/key")[0]


def test_a_closed_directory_within_a_visible_one_opens_only_towards_a_visible_path(tree):
    root = tree(app__main=0o644, app__inner__bin__tool=0o644, app__inner__private=0o644)
    (root / "app").chmod(0o755)
    (root / "app/inner").chmod(0o700)
    (root / "app/inner/bin").chmod(0o755)
    view = View(visible=(str(root / "app"), str(root / "app/inner/bin")))
    assert seen(view, f"ls {root}/app; ls {root}/app/inner") == ["inner", "main", "bin"]
    assert seen(view, f"cat {root}/app/inner/bin/tool; echo") == ["tool"]


def test_a_hidden_directory_shows_only_what_is_visible_in_it(tree):
    root = tree(run__pods__a__file=0o644, run__pods__b__file=0o644, run__key=0o644)
    for path in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        path.chmod(0o755)
    view = View(visible=(str(root / "run/pods/a"), str(root)), hidden=(str(root / "run"),))
    assert seen(view, f"ls {root}/run {root}/run/pods") == [f"{root}/run:", "pods", "", f"{root}/run/pods:", "a"]
    assert seen(view, f"cat {root}/run/pods/a/file; echo") == ["file"]
    assert seen(View(visible=(str(root),), hidden=(str(root / "run"),)), f"ls {root}/run") == []


def test_directories_on_the_way_can_be_entered_whatever_the_umask(tree):
    root = tree(deep__app__main=0o644, deep__empty__file=0o644)
    for path in (root / "deep", root / "deep/app", root / "deep/empty"):
        path.chmod(0o755)
    before = os.umask(0o077)
    try:
        view = View(visible=(str(root / "deep/app"),), hidden=(str(root / "deep/empty"),))
        assert seen(view, f"cat {root}/deep/app/main; echo; ls {root}/deep {root}/deep/empty") == [
            "main",
            f"{root}/deep:",
            "app",
            "empty",
            "",
            f"{root}/deep/empty:",
        ]
    finally:
        os.umask(before)


def test_single_files_can_be_visible_and_names_may_be_odd(tree):
    root = tree(**{"it's a $HOME *__f": 0o644})
    file = root / "it's a $HOME *" / "f"
    assert seen(View(visible=(str(file),)), f"find {root} -type f | wc -l", f"cat {root}/*/f; echo") == ["1", "f"]


def test_a_file_is_laid_over_another_even_through_a_link(tree):
    root = tree(own=0o644, far=0o644)
    (root / "link").symlink_to(root / "far")
    view = View(visible=(str(root),), files=(Laid(str(root / "own"), str(root / "link")),))
    assert seen(view, f"cat {root}/far; echo") == ["own"]


def test_a_file_can_be_laid_from_and_over_places_that_are_covered(tree):
    root = tree(app__main=0o644, app__names=0o644, run__own=0o644, system__names=0o644)
    (root / "app").chmod(0o755)
    source = str(root / "run/own")
    for target in ("app/names", "system/names"):
        view = View(visible=(str(root / "app"),), files=(Laid(source, str(root / target)),))
        assert seen(view, f"cat {root}/{target} {root}/app/main; echo; ls {root}/run") == [
            "ownmain",
            f"ls: cannot access '{root}/run': No such file or directory",
        ]


def test_what_is_written_through_reaches_the_real_file(tree):
    root = tree(app__log=0o666)
    (root / "app").chmod(0o755)
    assert seen(View(visible=(str(root / "app"),)), f"echo line > {root}/app/log") == []
    assert (root / "app/log").read_text() == "line\n"


def test_a_closed_directory_with_too_many_entries_is_an_error_with_a_hint(tree):
    root = tree(**{f"many__{number}": 0o644 for number in range(201)})
    (root / "many").chmod(0o700)
    with pytest.raises(NetworkError, match="chmod o\\+rx"):
        mount_lines(View(visible=(str(root / "many"),)), UID, GID)


def test_permission_follows_owner_then_group_then_others(tmp_path):
    tmp_path.chmod(0o751)
    assert [may(uid, gid, tmp_path, 5) for uid, gid in ((0, 0), (UID, 0), (UID, GID))] == [True, True, False]
    assert may(UID, GID, tmp_path, 1)
    assert str(tmp_path) not in map(str, closed_ancestors(UID, GID, tmp_path / "file"))
