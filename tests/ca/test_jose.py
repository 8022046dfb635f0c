from __future__ import annotations

import time

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from ca import forging, making
from weft.ca.jose import LONGEST_TOKEN, verified_claims
from weft.ca.token_keys import token_key
from weft.ca.tokens import TokenReason, TokenRefused

KEY = making.p256()
KEYS = (token_key(KEY.public_key(), "one"),)
CLAIMS = {"sub": "me", "exp": int(time.time()) + 3600}
HEADER = {"alg": "ES256", "kid": "one", "typ": "JWT"}
GOOD = forging.es256(KEY, HEADER, CLAIMS)


def reason(token: str, keys=KEYS) -> TokenReason:
    with pytest.raises(TokenRefused) as refused:
        verified_claims(token, keys)
    assert len(token) < 20 or token not in str(refused.value)
    return refused.value.reason


def test_reads_the_claims_of_a_good_token():
    assert verified_claims(GOOD, KEYS) == CLAIMS


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(65_537, 2048), "RS256"),
        (rsa.generate_private_key(65_537, 2048), "PS256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
def test_reads_what_other_kinds_of_keys_have_signed(key, algorithm):
    token = jwt.encode(CLAIMS, key, algorithm)
    assert verified_claims(token, (token_key(key.public_key()),)) == CLAIMS
    assert reason(token) is TokenReason.ALGORITHM


@pytest.mark.parametrize("none", ["none", "None", "NONE", "nOnE", "", "none\0"])
def test_rejects_an_unsigned_token_with_algorithm_none(none):
    header = forging.encode({"alg": none, "kid": "one"})
    body = forging.encode(CLAIMS)
    assert reason(f"{header}.{body}.") is TokenReason.MALFORMED
    assert reason(f"{header}.{body}.AAAA") is TokenReason.ALGORITHM


@pytest.mark.parametrize("secret", ["PEM", "DER", "raw", "empty"])
def test_a_public_key_is_not_taken_for_a_shared_secret(secret):
    """The classical algorithm confusion: an HMAC with the public key as the secret."""
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    public = KEY.public_key()
    known = {
        "PEM": forging.public_pem(KEY),
        "DER": public.public_bytes(serialization.Encoding.DER, info),
        "raw": public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint),
        "empty": b"",
    }[secret]
    for algorithm in ("HS256", "HS384", "HS512"):
        assert reason(forging.hs256(known, {"alg": algorithm, "kid": "one"}, CLAIMS)) is TokenReason.ALGORITHM
    assert reason(forging.hs256(known, HEADER, CLAIMS)) is TokenReason.SIGNATURE


@pytest.mark.parametrize(
    "key_id",
    ["two", "", "../../../dev/null", "/etc/passwd", "one' OR '1'='1", "one\0two", "http://evil/key", "٠", "one "],
)
def test_a_key_id_only_picks_among_known_keys(key_id):
    forger = making.p256()
    for key in (KEY, forger):
        assert reason(forging.es256(key, {"alg": "ES256", "kid": key_id}, CLAIMS)) is TokenReason.UNKNOWN_KEY


@pytest.mark.parametrize("key_id", [1, None, True, ["one"], {"one": 1}])
def test_a_key_id_of_another_type_is_refused(key_id):
    header = {"alg": "ES256", "kid": key_id}
    assert reason(forging.es256(KEY, header, CLAIMS)) is TokenReason.HEADER


def forged_jwk() -> tuple:
    forger = making.p256()
    numbers = forger.public_key().public_numbers()
    jwk = {"kty": "EC", "crv": "P-256"}
    jwk |= {name: forging.encode(getattr(numbers, name).to_bytes(32, "big")) for name in ("x", "y")}
    return forger, jwk


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty", "x5t"])
def test_a_header_that_brings_its_own_key_or_rules_is_refused(name):
    """Rejected even if the signature is valid: no issuer that weft supports uses such a header."""
    forger, jwk = forged_jwk()
    value = {"jwk": jwk, "jku": "http://127.0.0.1:1/keys", "crit": ["exp"], "b64": False}.get(name, "x")
    for key in (forger, KEY):
        assert reason(forging.es256(key, HEADER | {name: value}, CLAIMS)) is TokenReason.HEADER


@pytest.mark.parametrize("algorithm", [None, 1, ["ES256"], {"ES256": 1}, True])
def test_an_algorithm_that_is_no_text_is_refused(algorithm):
    assert reason(forging.es256(KEY, {"alg": algorithm}, CLAIMS)) is TokenReason.ALGORITHM


def test_an_algorithm_must_be_the_keys_own():
    for algorithm in ("ES384", "ES512", "ES256K", "RS256", "PS256", "EdDSA", "es256", "ES256 "):
        assert reason(forging.es256(KEY, HEADER | {"alg": algorithm}, CLAIMS)) is TokenReason.ALGORITHM


def test_a_signature_is_needed_and_must_be_over_this_token():
    header, claims, signature = GOOD.split(".")
    assert reason(f"{header}.{claims}.") is TokenReason.MALFORMED
    assert reason(f"{header}.{claims}") is TokenReason.MALFORMED
    assert reason(f"{header}.{forging.encode(CLAIMS | {'sub': 'you'})}.{signature}") is TokenReason.SIGNATURE
    assert reason(forging.es256(making.p256(), HEADER, CLAIMS)) is TokenReason.SIGNATURE


ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@pytest.mark.parametrize("r", [0, 1, ORDER, ORDER + 1, 2**256 - 1])
@pytest.mark.parametrize("s", [0, 1, ORDER, 2**256 - 1])
def test_signatures_from_outside_the_range_prove_nothing(r, s):
    """Some verifiers once accepted a signature of two zeros for everything: CVE-2022-21449."""
    header, claims, _ = GOOD.split(".")
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    assert reason(f"{header}.{claims}.{forging.encode(signature)}") is TokenReason.SIGNATURE


def test_a_signature_in_another_form_is_refused():
    header, claims, _ = GOOD.split(".")
    der = KEY.sign(f"{header}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
    for signature in (der, b"\0" * 63, b"\0" * 65, b"\0", b"\0" * 6000):
        assert reason(f"{header}.{claims}.{forging.encode(signature)}") is TokenReason.SIGNATURE


@pytest.mark.parametrize(
    "claims",
    [
        b'{"sub": "me", "sub": "you"}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"exp": NaN}',
        b'{"exp": Infinity}',
        b'{"exp": ' + b"9" * 5000 + b"}",
        b"[" * 6000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b"[]",
        b'"text"',
        b"null",
        b"",
        b"{",
        b"{} {}",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        '{"exp": ١٢٣}'.encode(),
    ],
    ids=lambda claims: repr(claims[:20]),
)
def test_claims_that_could_be_read_in_two_ways_are_refused_even_if_signed(claims):
    assert reason(forging.es256(KEY, HEADER, claims)) is TokenReason.MALFORMED


@pytest.mark.parametrize(
    "header", [b'{"alg": "none", "alg": "ES256"}', b'{"alg": "ES256", "alg": "none"}', b"[]", b"1", b"[" * 700]
)
def test_headers_that_could_be_read_in_two_ways_are_refused(header):
    assert reason(forging.es256(KEY, header, CLAIMS)) is TokenReason.MALFORMED


def test_an_oversized_token_is_not_parsed():
    assert reason("a" * (LONGEST_TOKEN + 1)) is TokenReason.TOO_LONG
    assert reason(forging.es256(KEY, HEADER, {"a": "x" * LONGEST_TOKEN})) is TokenReason.TOO_LONG
    assert reason(forging.es256(KEY, HEADER | {"kid": "x" * 2000}, CLAIMS)) is TokenReason.TOO_LONG
    assert reason("") is TokenReason.MISSING


@pytest.mark.parametrize("change", ["{} ", " {}", "{}\n", "{}=", "{}.", ".{}", "{}.AAAA", "{}\0", "Bearer {}"])
def test_text_around_a_token_is_rejected(change):
    assert reason(change.format(GOOD)) is TokenReason.MALFORMED


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_changed_token_is_accepted(data):
    broken = list(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(broken) - 1))
        character = data.draw(st.sampled_from("ABCxyz019-_.=+/ \n\0é٣"))
        match data.draw(st.sampled_from(["change", "put", "drop", "cut"])):
            case "change":
                broken[place] = character
            case "put":
                broken.insert(place, character)
            case "drop":
                del broken[place]
            case "cut":
                del broken[place:]
        if not broken:
            break
    token = "".join(broken)
    if token != GOOD:
        reason(token)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.sampled_from(["alg", "kid", "typ", "jwk"]), each),
        max_leaves=8,
    )
)
def test_no_header_makes_a_forged_token_good(header):
    reason(f"{forging.encode(header)}.{forging.encode(CLAIMS)}.{'A' * 86}")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_random_bytes_are_rejected_without_a_crash(noise):
    with pytest.raises(TokenRefused):
        verified_claims(noise, KEYS)
