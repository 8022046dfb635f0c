from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft.local import run_directory
from weft.local.error import LocalError
from weft.local.run_directory import acquire, clean, find, meshes, namespace_prefix, output_file
from weft.netns import namespace

pytestmark = pytest.mark.root


def unique() -> str:
    return f"t{os.urandom(4).hex()}"


def test_the_directory_is_roots_alone_and_gone_after_release(run_base):
    mesh = acquire(unique(), "/shop")
    assert mesh.path.stat().st_mode & 0o777 == 0o700
    (mesh.pod("shop", "payments-0") / "app.log").write_text("x")
    record = find(mesh.name)
    assert record is not None
    assert (record.running, record.pid, record.directory) == (True, os.getpid(), "/shop")
    mesh.release()
    mesh.release()
    assert list(run_base.iterdir()) == []


def test_a_second_mesh_of_the_same_name_is_rejected_with_a_hint(run_base):
    mesh = acquire(unique(), "/shop")
    with pytest.raises(LocalError, match=rf"pid {os.getpid()}, /shop.*weft down {mesh.name}.*--name"):
        acquire(mesh.name, "/other")
    other = acquire(unique(), "/other")
    assert {record.name for record in meshes()} == {mesh.name, other.name}
    assert clean(mesh.name) is False
    mesh.release()
    other.release()


def test_no_two_meshes_share_a_user_even_if_one_was_killed(run_base):
    first, second = acquire(unique(), "/shop"), acquire(unique(), "/other")
    assert not set(first.users) & set(second.users)
    os.close(first._lock)  # as if the mesh had been killed: its apps may still run
    third = acquire(unique(), "/third")
    assert not set(third.users) & {*first.users, *second.users}
    assert clean(first.name)
    second.release()
    third.release()


@pytest.fixture
def default_base(run_base, monkeypatch):
    monkeypatch.delenv("WEFT_RUN_DIR")
    monkeypatch.setattr(run_directory, "DEFAULT_BASE", run_base / "weft")
    return run_base / "weft"


def test_the_last_mesh_takes_the_default_directory_with_it(default_base):
    first, second = acquire(unique(), "/shop"), acquire(unique(), "/other")
    first.release()
    assert default_base.is_dir()
    second.release()
    assert not default_base.exists()


def test_a_run_directory_chosen_by_the_user_is_kept(run_base):
    acquire(unique(), "/shop").release()
    assert run_base.is_dir()


def test_meshes_that_come_and_go_at_once_do_not_take_each_others_directory(default_base):
    failures = []

    def come_and_go() -> None:
        for _ in range(40):
            try:
                mesh = acquire(unique(), "/shop")
                assert mesh.path.is_dir()
                mesh.release()
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not default_base.exists()


def test_a_directory_that_vanishes_just_when_it_was_found_is_made_anew(default_base, monkeypatch):
    """Another mesh removes the directory at the worst moment: between the mkdir that fails and the check after it."""
    default_base.mkdir()
    really_mkdir = Path.mkdir

    def mkdir(path, *arguments, **options):
        try:
            really_mkdir(path, *arguments, **options)
        except FileExistsError:
            path.rmdir()
            raise

    monkeypatch.setattr(Path, "mkdir", mkdir)
    mesh = acquire(unique(), "/shop")
    assert mesh.path.is_dir()
    mesh.release()


def test_a_file_in_the_place_of_the_directory_is_named(default_base):
    default_base.write_text("not a directory")
    with pytest.raises(LocalError, match=r"cannot create .*: File exists"):
        acquire(unique(), "/shop")


def test_a_base_path_too_long_for_sockets_is_rejected_with_a_hint(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path / ("x" * 100)))
    with pytest.raises(LocalError, match=r"is too long for Unix sockets.*WEFT_RUN_DIR"):
        acquire(unique(), "/shop")


@pytest.mark.parametrize("name", ["", "A", "../x", "a.b", "-a", "x" * 33])
def test_a_name_that_could_leave_the_directory_is_refused(run_base, name):
    with pytest.raises(LocalError, match="is not a valid name for a mesh"):
        acquire(name, "/shop")


OWNER = """
import subprocess, sys
from weft.local.run_directory import acquire
from weft.netns import namespace
mesh = acquire(sys.argv[1], "/shop")
pod = namespace.make(mesh.namespace_name("shop", "payments-0"))
(mesh.pod("shop", "payments-0") / "app.log").write_text("x")
child = namespace.run_in(pod, lambda: subprocess.Popen(["sleep", "1000"], start_new_session=True))
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("by", ["clean", "acquire"])
def test_what_a_killed_mesh_left_is_ended_and_removed(run_base, by):
    name = unique()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    record = find(name)
    assert record is not None and not record.running
    assert Path(f"/proc/{child}").exists()
    if by == "clean":
        assert clean(name)
    else:
        acquire(name, "/shop").release()
    assert list(run_base.iterdir()) == []
    assert not [each for each in namespace.namespaces() if each.name.startswith(namespace_prefix(name))]
    assert run_directory.has_ended(child)
    assert clean(name) is False


def test_a_mesh_whose_name_begins_alike_is_not_touched(run_base):
    first, longer = "a", f"a-{os.urandom(3).hex()}"
    kept = namespace.make(f"{namespace_prefix(longer)}pod")
    try:
        assert run_directory.end_leftovers(first, run_base) is False
        assert namespace.exists(kept)
    finally:
        namespace.delete(kept)


@pytest.mark.parametrize("by", ["clean", "acquire"])
def test_a_mesh_of_the_same_name_in_another_run_directory_is_not_touched(run_base, monkeypatch, by):
    name = unique()
    first = acquire(name, "/shop")
    kept = namespace.make(first.namespace_name("shop", "payments-0"))
    try:
        monkeypatch.setenv("WEFT_RUN_DIR", str(run_base / "other"))
        if by == "clean":
            assert clean(name) is False
        else:
            second = acquire(name, "/shop")
            assert second.namespace_name("shop", "payments-0") != kept.name
            second.release()
        assert namespace.exists(kept)
    finally:
        first.release()
    assert not namespace.exists(kept)


def test_only_the_default_run_directory_leaves_namespaces_their_short_names(run_base, monkeypatch):
    assert namespace_prefix("shop").startswith("weft-shop@")
    monkeypatch.delenv("WEFT_RUN_DIR")
    assert namespace_prefix("shop") == "weft-shop."
    monkeypatch.setenv("WEFT_RUN_DIR", "/run/../run/weft/")
    assert namespace_prefix("shop") == "weft-shop."


@pytest.mark.parametrize("by", ["release", "clean"])
def test_what_a_mesh_in_the_background_printed_goes_with_it(run_base, by):
    mesh = acquire(unique(), "/shop")
    output_file(mesh.name).write_text("words")
    if by == "release":
        mesh.release()
    else:
        os.close(mesh._lock)
        clean(mesh.name)
    assert list(run_base.iterdir()) == []


def test_the_error_suggests_root_if_the_directory_cannot_be_created(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    program = f"""
import os
os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
os.environ["WEFT_RUN_DIR"] = {str(closed / "weft")!r}
import weft.local.run_directory as r
try: r.acquire("x", "/shop")
except r.LocalError as error: print(error)
"""
    # Imported before the user changes: the source tree may be closed to it.
    program = program.replace("\nimport os\n", "\nimport os\nimport weft.local.run_directory as r\n", 1)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "permission denied (hint: run as root" in done.stdout
