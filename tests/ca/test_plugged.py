from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca import making
from weft.ca.certificates import certificate_pem, key_pem
from weft.ca.error import AuthorityError
from weft.ca.plugged import PluggedIn, is_plugged_in, read_plugged

ROOT_KEY, MIDDLE_KEY, SIGNER_KEY = making.p256(), making.p256(), making.p256()
ROOT = making.ca("root", ROOT_KEY)
MIDDLE = making.ca("middle", MIDDLE_KEY, by=ROOT, by_key=ROOT_KEY)
SIGNER = making.ca("signer", SIGNER_KEY, by=MIDDLE, by_key=MIDDLE_KEY)
NOW = making.Clock()()


def refused(directory) -> AuthorityError:
    with pytest.raises(AuthorityError) as error:
        read_plugged(directory, NOW)
    assert error.value.problem.hint
    return error.value


def test_a_plugged_in_root_signs_without_a_chain(tmp_path):
    making.plug_in(tmp_path, certificate=ROOT, key=ROOT_KEY)
    plugged = read_plugged(tmp_path, NOW)
    assert plugged.roots == (certificate_pem(ROOT),)
    assert plugged.signing.chain == ()


@pytest.mark.parametrize("chain", [(MIDDLE,), (SIGNER, MIDDLE), (SIGNER, MIDDLE, ROOT), (ROOT, MIDDLE, SIGNER)])
def test_an_intermediates_chain_leads_to_the_root_however_it_is_written(tmp_path, chain):
    """Istio's own instructions put the root into cert-chain.pem, others do not."""
    making.plug_in(tmp_path, certificate=SIGNER, key=SIGNER_KEY, roots=[ROOT], chain=chain)
    plugged = read_plugged(tmp_path, NOW)
    assert plugged.signing.chain == (certificate_pem(SIGNER), certificate_pem(MIDDLE))
    assert plugged.roots == (certificate_pem(ROOT),)


def test_the_root_above_the_signer_is_the_first_of_several(tmp_path):
    other = making.ca("other", making.p256())
    making.plug_in(tmp_path, certificate=MIDDLE, key=MIDDLE_KEY, roots=[other, ROOT, other])
    assert read_plugged(tmp_path, NOW).roots == (certificate_pem(ROOT), certificate_pem(other))


@pytest.mark.parametrize("name", ["ca-cert.pem", "ca-key.pem"])
def test_one_file_is_enough_to_detect_a_plugged_in_ca(tmp_path, name):
    assert not is_plugged_in(tmp_path)
    making.plug_in(tmp_path, certificate=ROOT, key=ROOT_KEY)
    (tmp_path / name).unlink()
    assert is_plugged_in(tmp_path)
    assert refused(tmp_path).problem.where.file == str(tmp_path / name)


def test_the_key_must_be_the_certificates(tmp_path):
    making.plug_in(tmp_path, certificate=ROOT, key=MIDDLE_KEY)
    assert "is not the key of ca-cert.pem" in str(refused(tmp_path))


def test_a_key_that_others_may_read_is_not_used(tmp_path):
    making.plug_in(tmp_path, certificate=ROOT, key=ROOT_KEY)
    (tmp_path / "ca-key.pem").chmod(0o644)
    assert "other users may read it" in str(refused(tmp_path))


def test_an_intermediate_needs_its_root(tmp_path):
    making.plug_in(tmp_path, certificate=MIDDLE, key=MIDDLE_KEY)
    assert "put its root into this file" in str(refused(tmp_path))


def test_every_step_up_to_the_root_is_needed(tmp_path):
    making.plug_in(tmp_path, certificate=SIGNER, key=SIGNER_KEY, roots=[ROOT])
    assert "has signed 'CN=signer'" in str(refused(tmp_path))
    stranger = making.ca("middle", making.p256())  # the right name, another key
    making.plug_in(tmp_path, chain=[stranger])
    assert "has signed 'CN=signer'" in str(refused(tmp_path))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"ends": -0.5}, "expired on"),
        ({"begins": 1}, "is valid only from"),
        ({"is_ca": False}, "is not a CA: its basic constraints have CA:FALSE"),
        ({"is_ca": None}, "is not a CA: it has no basic constraints"),
        ({"signs": False}, "may not sign certificates: its key usage lacks keyCertSign"),
    ],
)
def test_a_certificate_that_cannot_sign_is_rejected(tmp_path, how, why):
    bad = making.ca("bad", SIGNER_KEY, by=ROOT, by_key=ROOT_KEY, **how)
    making.plug_in(tmp_path, certificate=bad, key=SIGNER_KEY, roots=[ROOT])
    assert why in str(refused(tmp_path))


def test_a_root_without_key_usage_may_sign(tmp_path):
    """`openssl req -x509` creates such a root."""
    root = making.ca("root", ROOT_KEY, signs=None)
    making.plug_in(tmp_path, certificate=root, key=ROOT_KEY)
    assert read_plugged(tmp_path, NOW).signing.certificate == root


def test_an_expired_root_is_refused(tmp_path):
    old = making.ca("old", ROOT_KEY, ends=-0.5)
    fresh = making.ca("fresh", SIGNER_KEY, by=old, by_key=ROOT_KEY)
    making.plug_in(tmp_path, certificate=fresh, key=SIGNER_KEY, roots=[old])
    assert "expired on" in str(refused(tmp_path))


def test_a_path_length_is_kept(tmp_path):
    short = making.ca("short", ROOT_KEY, path_length=0)
    below = making.ca("below", SIGNER_KEY, by=short, by_key=ROOT_KEY)
    making.plug_in(tmp_path, certificate=below, key=SIGNER_KEY, roots=[short])
    assert "allows 0 CAs below it, but there are 1" in str(refused(tmp_path))
    making.plug_in(tmp_path, certificate=short, key=ROOT_KEY)
    assert read_plugged(tmp_path, NOW)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("ca-cert.pem", b"noise", "contains no certificates"),
        ("root-cert.pem", b"\xff" * 100, "contains no certificates"),
        (
            "cert-chain.pem",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "contains no certificates",
        ),
        ("ca-key.pem", b"noise", "the file contains no private key"),
        ("ca-key.pem", key_pem(rsa.generate_private_key(65_537, 1024)).encode(), "is too weak"),
        (
            "ca-key.pem",
            key_pem(ec.generate_private_key(ec.SECP521R1())).encode(),
            "is too weak, or of a kind that is not supported",
        ),
        (
            "ca-key.pem",
            ROOT_KEY.private_bytes(
                making.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
            ),
            "is encrypted",
        ),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, content, why):
    making.plug_in(tmp_path, certificate=ROOT, key=ROOT_KEY, roots=[ROOT], chain=[MIDDLE])
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path)
    assert why in str(error)
    assert error.problem.where.file == str(tmp_path / name)


def test_other_kinds_of_keys_can_be_plugged_in(tmp_path):
    for number, key in enumerate([ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(65_537, 2048)]):
        making.plug_in(tmp_path / str(number), certificate=making.ca("root", key), key=key)
        assert read_plugged(tmp_path / str(number), NOW).signing.key


def test_changed_files_are_used_at_once_if_they_are_good_together(tmp_path):
    making.plug_in(tmp_path, certificate=MIDDLE, key=MIDDLE_KEY, roots=[ROOT])
    kept = PluggedIn(tmp_path, NOW)
    assert not kept.tick(NOW)
    new_key = making.p256()
    new = making.ca("new root", new_key)
    making.plug_in(tmp_path, roots=[ROOT, new])
    assert kept.tick(NOW)
    assert kept.bundle() == (certificate_pem(ROOT), certificate_pem(new))
    assert kept.signing.certificate == MIDDLE
    making.plug_in(tmp_path, certificate=new)  # the key file is replaced a moment later
    assert not kept.tick(NOW)
    assert "is not the key of ca-cert.pem" in kept.problem
    assert kept.signing.certificate == MIDDLE
    making.plug_in(tmp_path, key=new_key)
    assert kept.tick(NOW)
    assert kept.problem == ""
    assert kept.signing.certificate == new
    assert kept.bundle() == (certificate_pem(new), certificate_pem(ROOT))


def test_files_that_have_gone_change_nothing(tmp_path):
    making.plug_in(tmp_path, certificate=ROOT, key=ROOT_KEY)
    kept = PluggedIn(tmp_path, NOW)
    for each in list(tmp_path.iterdir()):
        each.unlink()
    assert not kept.tick(NOW)
    assert kept.problem
    assert kept.bundle() == (certificate_pem(ROOT),)


def test_the_error_explains_how_a_plugged_in_ca_is_rotated(tmp_path):
    making.plug_in(tmp_path, certificate=ROOT, key=ROOT_KEY)
    for rotate in (lambda kept: kept.rotate(NOW, 0.0), lambda kept: kept.switch(NOW)):
        with pytest.raises(AuthorityError, match="weft does not rotate its roots") as error:
            rotate(PluggedIn(tmp_path, NOW))
        assert "put the old and the new root into root-cert.pem" in error.value.problem.hint
