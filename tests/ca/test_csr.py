from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ca import making
from weft.ca.csr import LONGEST_CSR, CsrReason, CsrRefused, read_public_key

DER = serialization.Encoding.DER
VALID = [making.csr(key, encoding=DER) for key in (making.p256(), ed25519.Ed25519PrivateKey.generate())]
RSA = rsa.generate_private_key(65_537, 2048)
VALID.append(making.csr(RSA, encoding=DER))


def pem(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE REQUEST-----\n"


def reason(csr: bytes) -> CsrReason:
    with pytest.raises(CsrRefused) as refused:
        read_public_key(csr)
    return refused.value.reason


@pytest.mark.parametrize(
    "key",
    [making.p256(), ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate(), RSA],
    ids=["P-256", "P-384", "Ed25519", "RSA 2048"],
)
def test_takes_the_public_key_of_a_request(key):
    assert read_public_key(making.csr(key)) == key.public_key()


@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(65_537, 1024),
        rsa.generate_private_key(3, 2048),
        ec.generate_private_key(ec.SECP521R1()),
        ec.generate_private_key(ec.SECP256K1()),
        ec.generate_private_key(ec.SECP224R1()),
    ],
    ids=["RSA 1024", "RSA exponent 3", "P-521", "secp256k1", "P-224"],
)
def test_refuses_keys_that_are_weak_or_of_another_kind(key):
    assert reason(making.csr(key)) is CsrReason.KEY


def test_rejects_kinds_of_keys_without_certificate_support():
    assert reason(making.csr(dsa.generate_private_key(2048))) is CsrReason.KEY
    assert reason(making.csr(ed448.Ed448PrivateKey.generate(), algorithm=None)) is CsrReason.KEY


def test_refuses_an_rsa_key_that_is_too_large_before_it_verifies_with_it():
    """Verifying with 4097 bits or more would cost the CA too much time. The signature here is invalid, and must not
    be reached."""
    huge = rsa.RSAPublicNumbers(65_537, (1 << 8191) + 1).public_key()
    spki = huge.public_bytes(DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    info = _der(0x30, b"\x02\x01\x00" + _der(0x30, b"") + spki + b"\xa0\x00")
    sha256_with_rsa = bytes.fromhex("300d06092a864886f70d01010b0500")
    request = _der(0x30, info + sha256_with_rsa + _der(0x03, b"\x00" + b"\x01" * 1024))
    assert reason(pem(request)) is CsrReason.KEY


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 128:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def test_refuses_a_request_that_is_signed_by_another_key():
    """An attacker knows the public key, but not the private key."""
    honest, thief = making.p256(), making.p256()
    der = making.csr(honest, encoding=DER)
    spki = [
        key.public_key().public_bytes(DER, serialization.PublicFormat.SubjectPublicKeyInfo) for key in (honest, thief)
    ]
    assert reason(pem(der.replace(*spki))) is CsrReason.SIGNATURE


def test_refuses_a_request_that_is_signed_over_sha1():
    ours = x509.load_der_x509_csr(making.csr(RSA, encoding=DER))
    signature = RSA.sign(ours.tbs_certrequest_bytes, _pkcs1(), hashes.SHA1())
    sha1_with_rsa = bytes.fromhex("300d06092a864886f70d0101050500")
    request = _der(0x30, ours.tbs_certrequest_bytes + sha1_with_rsa + _der(0x03, b"\x00" + signature))
    with pytest.raises(CsrRefused, match="the CSR's signature uses sha1, which is too weak") as refused:
        read_public_key(pem(request))
    assert refused.value.reason is CsrReason.SIGNATURE


def _pkcs1():
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding.PKCS1v15()


@pytest.mark.parametrize(
    ("csr", "why"),
    [
        (b"", CsrReason.MALFORMED),
        (b"hello", CsrReason.MALFORMED),
        (VALID[0], CsrReason.MALFORMED),  # DER
        (pem(b""), CsrReason.MALFORMED),
        (pem(VALID[0]) * 2, CsrReason.MALFORMED),
        (pem(VALID[0]).replace(b"CERTIFICATE REQUEST", b"CERTIFICATE"), CsrReason.MALFORMED),
        (pem(b"\x30\x84\xff\xff\xff\xff" + b"\x00" * 100), CsrReason.MALFORMED),
        (pem(b"\x30\x80" * 2000), CsrReason.MALFORMED),
        (b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A" * LONGEST_CSR, CsrReason.TOO_LONG),
    ],
    ids=["empty", "text", "DER", "empty PEM", "two", "a certificate", "long length", "nested", "huge"],
)
def test_rejects_anything_but_a_csr(csr, why):
    assert reason(csr) is why


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_a_modified_csr_is_rejected_without_a_crash(der, data):
    """Any change invalidates the signature. If a changed CSR is accepted, its key must be unchanged."""
    broken = bytearray(der)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(broken) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "put", "drop"])):
            case "flip":
                broken[place] ^= data.draw(st.integers(1, 255))
            case "cut":
                del broken[place:]
            case "put":
                broken[place:place] = data.draw(st.binary(min_size=1, max_size=20))
            case "drop":
                del broken[place]
        if not broken:
            break
    if bytes(broken) == der:
        return
    try:
        read = read_public_key(pem(bytes(broken)))
    except CsrRefused:
        return
    assert read == x509.load_der_x509_csr(der).public_key()  # the same key, proven: nothing was gained


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
@example(b"-----BEGIN CERTIFICATE REQUEST-----\n\xff\xfe\n-----END CERTIFICATE REQUEST-----\n")
@example(b"-----BEGIN CERTIFICATE REQUEST-----")
def test_random_bytes_are_rejected_without_a_crash(noise):
    with pytest.raises(CsrRefused):
        read_public_key(noise)
    with pytest.raises(CsrRefused):
        read_public_key(pem(noise))
