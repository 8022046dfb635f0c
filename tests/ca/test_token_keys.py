from __future__ import annotations

import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ca import forging, making
from weft.ca.certificates import certificate_pem, key_pem
from weft.ca.error import AuthorityError
from weft.ca.token_keys import read_token_keys, token_key

RSA = rsa.generate_private_key(65_537, 2048)


def jwk(key, **more):
    algorithm = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    made = next(each for kind, each in algorithm.items() if isinstance(key, kind))
    return json.loads(made.to_jwk(key.public_key())) | more


def read(tmp_path, content):
    path = tmp_path / "keys"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_token_keys(path)


def test_reads_a_jwks_and_passes_over_what_signs_nothing(tmp_path):
    kinds = [RSA, making.p256(), ed25519.Ed25519PrivateKey.generate()]
    keys = [jwk(key, kid=str(number)) for number, key in enumerate(kinds)]
    keys += [jwk(making.p256(), use="enc"), {"kty": "new"}]
    found = read(tmp_path, {"keys": keys})
    assert [key.key_id for key in found] == ["0", "1", "2"]
    assert [key.algorithms[0] for key in found] == ["RS256", "ES256", "EdDSA"]


def test_reads_public_keys_and_certificates_as_pem(tmp_path):
    first, second = making.p256(), making.p256()
    text = forging.public_pem(first) + certificate_pem(making.ca("issuer", second)).encode()
    assert [key.key for key in read(tmp_path, text)] == [first.public_key(), second.public_key()]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"keys": []}, "contains no public key"),
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "a secret or private key"),
        ({"keys": [jwk(RSA) | {"d": "AQAB"}]}, "a secret or private key"),
        ({"keys": [jwk(RSA, kid=5)]}, r"a key id \(kid\) is not a string"),
        ({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}, "contains no usable keys"),
        ({"keys": [{"kty": "RSA"}]}, "contains no usable keys"),
        ({"keys": 5}, "contains no usable keys"),
        ({"keys": ["x"]}, "contains no usable keys"),
        ({"other": []}, "contains no usable keys"),
        (b"{", "contains no usable keys"),
        (b"", "contains no public key"),
        (b"noise", "contains no public key"),
        (b"-----BEGIN PUBLIC KEY-----\nnoise\n", "contains no usable keys"),
        (key_pem(making.p256()).encode(), "the file contains a private key"),
        (forging.public_pem(rsa.generate_private_key(65_537, 1024)), "1024 bits is too weak"),
        (forging.public_pem(ec.generate_private_key(ec.SECP256K1())), "only public RSA"),
        (b"x" * 300_000, "larger than 256 KiB"),
    ],
)
def test_an_invalid_key_file_is_an_error_with_a_reason(tmp_path, content, why):
    with pytest.raises(AuthorityError, match=why) as error:
        read(tmp_path, content)
    assert error.value.problem.where.file == str(tmp_path / "keys")
    assert "/openid/v1/jwks" in error.value.problem.hint


def test_a_missing_key_file_is_an_error(tmp_path):
    with pytest.raises(AuthorityError, match="No such file"):
        read_token_keys(tmp_path / "no")


def test_a_secret_is_no_key():
    with pytest.raises(ValueError, match="only public"):
        token_key(b"secret")
