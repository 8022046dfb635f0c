from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca import making
from weft.base.problem import Severity
from weft.ca.authority import Authority
from weft.ca.certificates import certificate_pem
from weft.ca.error import AuthorityError
from weft.ca.status import AuthorityStatus, certificate_facts, read_status


def test_the_status_of_a_directory_can_be_read_while_its_ca_signs(tmp_path):
    authority = Authority.open(tmp_path / "ca", making.DOMAIN)
    assert read_status(tmp_path / "ca") == authority.status()
    authority.rotate(timedelta(hours=1))
    status = read_status(tmp_path / "ca")
    assert status == authority.status()
    assert [each.role for each in status.certificates] == ["signing root", "next root"]
    assert "the old one signs until" in status.next_step
    authority.switch()
    status = read_status(tmp_path / "ca")
    assert [each.role for each in status.certificates] == ["signing root", "fading root"]
    assert "the old one is dropped at" in status.next_step
    authority.close()


def test_a_status_holds_no_key_and_comes_back_from_json():
    status = Authority.in_memory(making.DOMAIN).status()
    text = msgspec.json.encode(status)
    assert b"PRIVATE" not in text
    assert msgspec.json.decode(text, type=AuthorityStatus) == status


def test_a_plugged_in_chain_is_shown_from_the_signer_up(tmp_path):
    root_key, key = making.p256(), making.p256()
    root = making.ca("root", root_key)
    signer = making.ca("signer", key, by=root, by_key=root_key)
    making.plug_in(tmp_path, certificate=signer, key=key, roots=[root, making.ca("next", making.p256())])
    status = read_status(tmp_path)
    assert status.kind == "plugged-in"
    assert [(each.role, each.subject) for each in status.certificates] == [
        ("signer", "CN=signer"),
        ("root", "CN=root"),
        ("root", "CN=next"),
    ]


def plugged(directory, *, root_ends, signer_ends):
    root_key, key = making.p256(), making.p256()
    root = making.ca("root", root_key, ends=root_ends)
    signer = making.ca("signer", key, by=root, by_key=root_key, ends=signer_ends)
    making.plug_in(directory, certificate=signer, key=key, roots=[root])
    return read_status(directory)


def test_an_expiring_and_an_expired_signer_get_a_warning(tmp_path):
    now = datetime.now(UTC)
    status = plugged(tmp_path, root_ends=3650, signer_ends=365)
    assert status.next_step == "one root is trusted, and an intermediate of it signs"
    assert status.problems(now) == ()
    (soon,) = status.problems(now + timedelta(days=340))
    assert soon.severity is Severity.WARNING and "signer 'CN=signer' expires at" in soon.what
    (over,) = status.problems(now + timedelta(days=366))
    assert over.severity is Severity.ERROR and "signer 'CN=signer' expired at" in over.what
    assert len(status.problems(now + timedelta(days=3651))) == 2
    short = plugged(tmp_path, root_ends=3650, signer_ends=1)  # it began a day ago
    assert short.problems(now) == ()
    assert len(short.problems(now + timedelta(hours=9))) == 1


def test_certificates_that_do_not_sign_get_no_expiry_warning(tmp_path):
    authority = Authority.in_memory(making.DOMAIN)
    authority.rotate(timedelta(0))
    old, new = authority.status().certificates
    status = msgspec.structs.replace(
        authority.status(), certificates=(old, msgspec.structs.replace(new, expires=new.not_before))
    )
    assert status.problems(datetime.now(UTC)) == ()


def test_the_status_shows_that_an_expired_signer_cannot_sign():
    status = Authority.in_memory(making.DOMAIN).status()
    root = msgspec.structs.replace(status.certificates[0], expires=datetime.now(UTC))
    assert "the CA cannot sign" in msgspec.structs.replace(status, certificates=(root,)).next_step


def test_files_that_are_not_used_are_a_problem():
    status = msgspec.structs.replace(Authority.in_memory(making.DOMAIN).status(), problem="ca-key.pem: is gone")
    (problem,) = status.problems(datetime.now(UTC))
    assert "the changed CA files are invalid; the old ones stay in use: ca-key.pem: is gone" in str(problem)


def test_a_directory_without_a_ca_is_an_error(tmp_path):
    with pytest.raises(AuthorityError, match="there is no CA"):
        read_status(tmp_path)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (making.p256(), "P-256"),
        (ec.generate_private_key(ec.SECP384R1()), "P-384"),
        (rsa.generate_private_key(65_537, 2048), "RSA 2048"),
        (ed25519.Ed25519PrivateKey.generate(), "Ed25519"),
    ],
)
def test_a_certificates_facts(key, shown):
    certificate = making.ca("root", key)
    facts = certificate_facts(certificate_pem(certificate), "root")
    assert facts.key == shown
    assert facts.subject == facts.issuer == "CN=root"
    assert facts.names == ()
    assert facts.fingerprint.replace(":", "") == certificate.fingerprint(making.hashes.SHA256()).hex()


def test_a_workloads_names_are_shown():
    chain = Authority.in_memory(making.DOMAIN).sign(making.csr(), making.WEB).chain
    assert certificate_facts(chain[0], "leaf").names == (str(making.WEB),)
