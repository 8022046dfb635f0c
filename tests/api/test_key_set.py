import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from weft.api.key_set import MOST_CHARACTERS, MOST_KEYS, KeyFlaw, read_key_set

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public(key, **more):
    algorithm = {rsa.RSAPublicKey: RSAAlgorithm, ec.EllipticCurvePublicKey: ECAlgorithm}
    kind = next((found for known, found in algorithm.items() if isinstance(key, known)), OKPAlgorithm)
    return {name: held for name, held in json.loads(kind.to_jwk(key)).items() if name != "key_ops"} | more


def of(*keys, **more):
    return json.dumps({"keys": keys, **more})


def flaw(*keys):
    found = read_key_set(of(*keys))
    assert isinstance(found, KeyFlaw)
    return found.what


RSA_PUBLIC = public(RSA_KEY.public_key())
EC_PUBLIC = public(ec.generate_private_key(ec.SECP256R1()).public_key())


@pytest.mark.parametrize(
    "key",
    [
        public(RSA_KEY.public_key(), kid="a", use="sig", alg="RS256"),
        public(RSA_KEY.public_key(), alg="PS512"),
        public(ec.generate_private_key(ec.SECP256R1()).public_key(), alg="ES256"),
        public(ec.generate_private_key(ec.SECP384R1()).public_key(), alg="ES384"),
        public(ec.generate_private_key(ec.SECP521R1()).public_key(), alg="ES512"),
        public(ed25519.Ed25519PrivateKey.generate().public_key(), alg="EdDSA", kid="e"),
    ],
    ids=lambda key: key["alg"],
)
def test_public_keys_stay_as_they_are(key):
    assert json.loads(read_key_set(of(key))) == {"keys": [key]}


def test_only_the_public_parts_of_a_key_are_returned():
    found = read_key_set(of(RSA_PUBLIC | {"kid": "a", "x5c": ["..."], "note": {"mine": 1}}, other="thing"))
    assert json.loads(found) == {"keys": [RSA_PUBLIC | {"kid": "a"}]}


@pytest.mark.parametrize("name", ["d", "p", "q", "dp", "dq", "qi", "oth", "k"])
def test_a_private_key_is_rejected_and_not_repeated(name):
    found = read_key_set(of(RSA_PUBLIC, RSA_PUBLIC | {name: "c2VjcmV0"}))
    assert found.what == "key 1 of `jwks` is a private key"
    assert "replace this key pair" in found.hint
    assert "c2VjcmV0" not in str(found)


def test_a_shared_secret_is_rejected_and_not_repeated():
    found = read_key_set(of({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}))
    assert "is a shared secret" in found.what
    assert "c2VjcmV0" not in str(found)


def test_weak_keys_are_refused():
    small = base64.urlsafe_b64encode(((1 << 1023) + 1).to_bytes(128)).decode().rstrip("=")
    assert flaw(RSA_PUBLIC | {"n": small}) == "key 0 of `jwks` has 1024 bits"
    for exponent in ("AQ", "AAAC", "EQ"):
        assert "exponent" in flaw(RSA_PUBLIC | {"e": exponent})
    assert json.loads(read_key_set(of(RSA_PUBLIC | {"e": "Aw"})))


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("a", "is not a JSON object"),
        ({}, "has an unsupported type"),
        ({"kty": 5}, "`kty` that is not text"),
        ({"kty": "RSA"}, "lacks `n`"),
        ({"kty": "RSA", "n": RSA_PUBLIC["n"]}, "lacks `e`"),
        (RSA_PUBLIC | {"n": "AAAAA"}, "an `n` that is truncated"),
        (RSA_PUBLIC | {"n": "AAAA"}, "an `n` of 0"),
        (RSA_PUBLIC | {"n": "!!"}, "an `n` that is not base64url"),
        (RSA_PUBLIC | {"n": "ää"}, "an `n` that is not base64url"),
        (RSA_PUBLIC | {"alg": "HS256"}, "`alg` that does not match its type"),
        (RSA_PUBLIC | {"alg": "none"}, "`alg` that does not match its type"),
        (RSA_PUBLIC | {"alg": "ES256"}, "`alg` that does not match its type"),
        (EC_PUBLIC | {"alg": "ES384"}, "`alg` that does not match its type"),
        (EC_PUBLIC | {"crv": "P-384"}, "of 48 bytes"),
        (EC_PUBLIC | {"crv": "secp256k1"}, "has an unsupported curve"),
        (EC_PUBLIC | {"x": "AA"}, "of 32 bytes"),
        (EC_PUBLIC | {"x": EC_PUBLIC["y"]}, "not on P-256"),
        (RSA_PUBLIC | {"n": base64.urlsafe_b64encode((1 << 2047).to_bytes(256)).decode()}, "`n` is even"),
        ({"kty": "OKP", "crv": "X25519", "x": "AA"}, "has an unsupported curve"),
        ({"kty": "OKP", "crv": "Ed25519", "x": "AA"}, "of 32 bytes"),
        (RSA_PUBLIC | {"use": "enc"}, "not for signatures"),
        (RSA_PUBLIC | {"kid": "k" * 2000}, "`kid` longer"),
    ],
)
def test_reports_what_is_wrong_with_a_key(key, what):
    assert what in flaw(key)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", "null", '{"keys": {}}', '{"keys": []}', "[" * 100_000, '{"keys": ' + "9" * 5_000 + "}"],
)
def test_a_text_that_is_no_key_set_is_rejected(text):
    assert isinstance(read_key_set(text), KeyFlaw)


def test_duplicate_members_are_rejected():
    assert isinstance(read_key_set('{"keys": [' + json.dumps(RSA_PUBLIC) + '], "keys": []}'), KeyFlaw)


def test_the_size_and_number_of_keys_are_limited():
    assert flaw(*[RSA_PUBLIC] * (MOST_KEYS + 1)) == f"`jwks` must have between 1 and {MOST_KEYS} keys, not 101"
    assert "longer than" in read_key_set(" " * MOST_CHARACTERS + of(RSA_PUBLIC)).what


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@given(
    st.lists(
        JSON
        | st.fixed_dictionaries(
            {"kty": st.sampled_from(["RSA", "EC", "OKP", "oct"]) | JSON},
            optional={
                name: JSON | st.sampled_from(["P-256", "Ed25519", "AQAB", "sig", RSA_PUBLIC["n"]])
                for name in ("n", "e", "crv", "x", "y", "alg", "use", "kid")
            },
        ),
        max_size=3,
    )
)
def test_any_keys_are_read_or_refused_but_never_raise(keys):
    read_key_set(json.dumps({"keys": keys}))


@given(st.text())
def test_any_text_is_read_or_refused_but_never_raises(text):
    read_key_set(text)
