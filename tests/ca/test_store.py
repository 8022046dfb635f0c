from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

import msgspec
import pytest

from weft.ca.error import AuthorityError
from weft.ca.rotation import Root, State
from weft.ca.store import BUNDLE, STATE, Store, read_secret, read_state, replace_file

SAVED = State(trust_domain="cluster.local", signer=Root("certificate\n", "key\n"), next=Root("next\n", "key\n"))


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "ca")
    yield made
    made.close()


def test_a_state_comes_back_as_it_was(store):
    assert store.load() is None
    store.save(SAVED)
    assert store.load() == SAVED
    assert (store.directory / BUNDLE).read_text() == "certificate\nnext\n"


def test_only_the_owner_can_read_what_is_secret_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        store = Store(tmp_path / "ca")
        store.save(SAVED)
    finally:
        os.umask(before)
    assert mode(store.directory) == 0o700
    assert mode(store.directory / STATE) == 0o600
    assert "key" not in (store.directory / BUNDLE).read_text()
    store.close()


@pytest.fixture
def public():
    """A directory that every user can enter; pytest's own directories belong to root."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def read_as(uid, gid, file):
    """Return what a process of that user and group reads: the content, or the error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            try:
                said = read_secret(file)
            except AuthorityError as error:
                said = str(error).encode()
            os.write(writing, said)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read()


@pytest.mark.root
def test_a_secret_that_kubernetes_hands_to_our_group_is_read_and_no_other(public):
    file = public / "ca-key.pem"
    file.write_bytes(b"a key")
    os.chown(file, 0, 1337)
    file.chmod(0o440)
    assert read_as(1337, 1337, file) == b"a key"
    file.chmod(0o460)
    assert b"other users may read it" in read_as(1337, 1337, file)
    file.chmod(0o440)
    os.chown(file, 2000, 1337)
    assert b"other users may read it" in read_as(1337, 1337, file)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_key_that_others_may_read_is_not_used(store, bits):
    store.save(SAVED)
    (store.directory / STATE).chmod(bits)
    with pytest.raises(AuthorityError, match="other users may read it") as error:
        store.load()
    assert "chmod 600" in error.value.problem.hint


@pytest.mark.root
def test_a_key_of_another_user_is_not_used(store):
    store.save(SAVED)
    os.chown(store.directory / STATE, 12345, 12345)
    with pytest.raises(AuthorityError, match="belongs to another user"):
        store.load()


def test_a_directory_that_others_may_write_to_is_not_used(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(AuthorityError, match="other users may write to the directory"):
        Store(tmp_path)


def test_one_process_signs_with_a_root(tmp_path):
    first = Store(tmp_path / "ca")
    with pytest.raises(AuthorityError, match="another process signs with this root"):
        Store(tmp_path / "ca")
    first.close()
    Store(tmp_path / "ca").close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"trust_domain": 5}', '{"version": 2}', "\xff"])
def test_an_invalid_state_is_an_error_that_reveals_no_key(store, text):
    path = store.directory / STATE
    path.touch(mode=0o600)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(AuthorityError, match="is not a valid state of weft's CA"):
        read_state(store.directory)


def test_a_newer_state_is_left_alone(store):
    store.save(State(version=2, trust_domain="x", signer=Root("c", "k")))
    with pytest.raises(AuthorityError, match="newer weft"):
        store.load()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_file(path, b"old", mode=0o600)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new", mode=0o600)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_link_in_the_way_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    (tmp_path / ".file.new").symlink_to(target)
    replace_file(tmp_path / "file", b"new", mode=0o600)
    assert target.read_bytes() == b"untouched"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_missing_secret_file_is_none(tmp_path):
    assert read_secret(tmp_path / "no") is None
    with pytest.raises(AuthorityError, match="cannot be read"):
        read_secret(tmp_path)


def test_a_directory_that_cannot_store_a_root_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AuthorityError, match="cannot store a root here"):
        Store(tmp_path / "file" / "ca")


@pytest.mark.parametrize("file", [STATE, BUNDLE])
def test_a_failed_save_leaves_both_files_as_they_were(store, monkeypatch, file):
    store.save(SAVED)
    before = {name: (store.directory / name).read_bytes() for name in (STATE, BUNDLE)}
    real = Path.rename

    def rename(self, target):
        if target.name == file:
            raise OSError(errno.EIO, "broken disk")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="broken disk"):
        store.save(msgspec.structs.replace(SAVED, signer=Root("other", "key")))
    monkeypatch.undo()
    assert {name: (store.directory / name).read_bytes() for name in (STATE, BUNDLE)} == before
    assert not [each for each in store.directory.iterdir() if each.name.endswith(".new")]
