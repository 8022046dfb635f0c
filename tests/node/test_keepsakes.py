"""The state that one agent leaves for the next, and in which directories it may be kept."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest

from identity_rig import TRUST_DOMAIN, identity
from weft.ca.authority import Authority
from weft.node.identities import certified
from weft.node.keepsakes import Keepsake, Keepsakes, KeepsakesRefused
from weft.node.key import Key, KeyKind

pytestmark = pytest.mark.root


@pytest.fixture
def memory():
    made = Path(tempfile.mkdtemp(prefix="weft-keep-", dir="/dev/shm"))
    yield made
    shutil.rmtree(made)


def keepsake(**more) -> Keepsake:
    fields = {"volume_id": "csi-1", "path": "/v", "namespace": "shop", "pod": "web-0", "uid": "u-1"}
    return Keepsake(**{**fields, "service_account": "default", "token": "t0p-secret", **more})


def held(kind=KeyKind.P256, lifetime=timedelta(hours=1)):
    authority, key = Authority.in_memory(TRUST_DOMAIN), Key(kind)
    return certified(authority.sign(key.request(identity()), identity(), lifetime), key, identity(), time.time())


@pytest.mark.parametrize("kind", [KeyKind.P256, KeyKind.RSA2048, KeyKind.ED25519])
def test_what_was_kept_is_the_same_certificate_and_key_for_the_next_agent(memory, kind):
    before = held(kind)
    Keepsakes(memory).keep(keepsake().with_certificate(before))
    (found,) = Keepsakes(memory).all()
    after = found.certificate(identity(), time.time())
    assert (after.chain, after.serial, after.obtained, after.key.kind) == (
        before.chain,
        before.serial,
        before.obtained,
        kind,
    )
    assert after.key.secret_pem() == before.key.secret_pem()
    assert (found.token, found.pod, found.uid) == ("t0p-secret", "web-0", "u-1")


def test_only_root_can_read_it_and_nothing_shows_it(memory):
    keepsakes = Keepsakes(memory)
    kept = keepsake().with_certificate(held())
    keepsakes.keep(kept)
    assert stat.S_IMODE(memory.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in memory.iterdir()] == [0o600]
    assert repr(kept) == "<state of shop/web-0>"


def test_a_directory_for_all_becomes_roots_alone(memory):
    memory.chmod(0o777)  # an emptyDir, as kubelet creates it
    Keepsakes(memory)
    assert stat.S_IMODE(memory.stat().st_mode) == 0o700


def test_never_on_a_disk(tmp_path, memory):
    with pytest.raises(KeepsakesRefused, match="is on a disk") as refused:
        Keepsakes(tmp_path)
    assert "medium Memory" in refused.value.problem.hint
    (memory / "file").touch()
    (memory / "link").symlink_to(tmp_path)
    for name, words in (
        ("file", "is not a directory|cannot be used"),
        ("link", "is not a directory"),
        ("a/b", "cannot be used"),
    ):
        with pytest.raises(KeepsakesRefused, match=words):
            Keepsakes(memory / name)
    (memory / "theirs").mkdir()
    os.chown(memory / "theirs", 65_000, 65_000)
    with pytest.raises(KeepsakesRefused, match="belongs to user 65000"):
        Keepsakes(memory / "theirs")


def test_an_unreadable_file_is_deleted_and_logged_without_its_content(memory, caplog):
    keepsakes = Keepsakes(memory)
    keepsakes.keep(keepsake())
    (memory / "broken.json").write_text('{"token": "t0p-secret')
    (memory / "theirs.json").write_text("{}")
    os.chown(memory / "theirs.json", 65_000, 65_000)
    (memory / "link.json").symlink_to("/etc/passwd")
    assert [each.uid for each in keepsakes.all()] == ["u-1"]
    assert [file.name for file in memory.iterdir()] == ["u-1.json"]
    assert "broken.json" in caplog.text and "t0p-secret" not in caplog.text


def test_a_certificate_that_expired_or_is_for_another_identity_or_key_is_not_used(memory, caplog):
    kept = keepsake().with_certificate(held())
    assert kept.certificate(identity(), time.time() + 7_200) is None
    assert kept.certificate(identity("other"), time.time()) is None
    other = keepsake(chain=kept.chain, key=Key().secret_pem(), obtained=kept.obtained)
    assert other.certificate(identity(), time.time()) is None
    assert keepsake(chain=kept.chain, key=b"no key").certificate(identity(), time.time()) is None
    assert keepsake(chain=("no chain",), key=kept.key).certificate(identity(), time.time()) is None
    assert keepsake().certificate(identity(), time.time()) is None
    assert caplog.text.count("the certificate that the previous agent kept cannot be used") == 5


def test_dropped_with_its_pod_and_a_full_memory_stops_nothing(memory, caplog):
    keepsakes = Keepsakes(memory)
    keepsakes.keep(keepsake())
    keepsakes.drop("u-1")
    keepsakes.drop("u-1")
    assert list(memory.iterdir()) == []
    memory.rename(memory.with_suffix(".moved"))
    try:
        keepsakes.keep(keepsake())
        assert "cannot keep <state of " in caplog.text and "for the next agent" in caplog.text
    finally:
        memory.with_suffix(".moved").rename(memory)
