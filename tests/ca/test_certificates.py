from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from ca import making
from weft.ca.certificates import Signing, Validity, certificate_pem, make_leaf, make_root, make_server

RSA = rsa.generate_private_key(65_537, 2048)


def signing(key=None) -> Signing:
    key = key or making.p256()
    now = time.time()
    return Signing(make_root(making.DOMAIN, key, Validity(now - 60, now + 86_400)), key)


def validity() -> Validity:
    now = time.time()
    return Validity(now - 60, now + 3600)


def extension(certificate, kind):
    return certificate.extensions.get_extension_for_class(kind)


def test_a_root_is_a_ca_for_leaves_only_and_has_a_name_of_its_own():
    one, other = signing().certificate, signing().certificate
    assert extension(one, x509.BasicConstraints).critical
    assert extension(one, x509.BasicConstraints).value == x509.BasicConstraints(ca=True, path_length=0)
    assert extension(one, x509.KeyUsage).value.key_cert_sign
    assert one.subject == one.issuer != other.subject


@pytest.mark.parametrize(
    "key",
    [making.p256(), ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate(), RSA],
    ids=["P-256", "P-384", "Ed25519", "RSA"],
)
@pytest.mark.parametrize(
    "by", [making.p256(), ec.generate_private_key(ec.SECP384R1()), RSA], ids=["P-256", "P-384", "RSA"]
)
def test_a_workloads_certificate_is_an_svid(key, by):
    signer = signing(by)
    leaf = make_leaf(signer, key.public_key(), str(making.WEB), validity())
    names = extension(leaf, x509.SubjectAlternativeName)
    assert names.critical  # the subject is empty
    assert list(names.value) == [x509.UniformResourceIdentifier("spiffe://cluster.local/ns/shop/sa/web")]
    assert not list(leaf.subject)
    assert extension(leaf, x509.BasicConstraints).value == x509.BasicConstraints(ca=False, path_length=None)
    usage = extension(leaf, x509.KeyUsage)
    assert usage.critical
    assert usage.value.digital_signature
    assert usage.value.key_encipherment is (key is RSA)
    assert not usage.value.key_cert_sign
    assert not usage.value.crl_sign
    purposes = set(extension(leaf, x509.ExtendedKeyUsage).value)
    assert purposes == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    ours = extension(signer.certificate, x509.SubjectKeyIdentifier).value
    assert extension(leaf, x509.AuthorityKeyIdentifier).value.key_identifier == ours.digest
    assert extension(leaf, x509.SubjectKeyIdentifier)
    leaf.verify_directly_issued_by(signer.certificate)


def test_serials_are_random_and_long():
    signer, key = signing(), making.p256().public_key()
    serials = {make_leaf(signer, key, str(making.WEB), validity()).serial_number for _ in range(50)}
    assert len(serials) == 50
    assert all(128 < serial.bit_length() <= 159 for serial in serials)


def test_the_key_id_is_made_from_the_key_where_a_ca_has_none():
    key = making.p256()
    name = x509.Name([])
    bare = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(key, making.hashes.SHA256())
    )
    leaf = make_leaf(Signing(bare, key), making.p256().public_key(), str(making.WEB), validity())
    expected = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest
    assert extension(leaf, x509.AuthorityKeyIdentifier).value.key_identifier == expected


def test_a_servers_certificate_has_names_and_addresses_and_is_no_client():
    signer = signing()
    leaf = make_server(signer, making.p256().public_key(), ("istiod.istio-system.svc", "127.0.0.1", "::1"), validity())
    names = extension(leaf, x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["istiod.istio-system.svc"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert list(extension(leaf, x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not making.verifies([certificate_pem(leaf)], [certificate_pem(signer.certificate)])
