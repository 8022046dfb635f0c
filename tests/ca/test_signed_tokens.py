from __future__ import annotations

import json
from datetime import timedelta

import jwt
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ca import forging, making
from weft.ca.signed_tokens import AUDIENCE, ISSUER, SignedTokens, TokenIssuer
from weft.ca.token_keys import token_key
from weft.ca.tokens import Caller, TokenReason, TokenRefused

KEY = making.p256()


@pytest.fixture
def clock():
    return making.Clock()


@pytest.fixture
def checker(clock):
    return SignedTokens([token_key(KEY.public_key())], issuer=ISSUER, clock=clock)


def claims(clock, **changes):
    made = {
        "iss": ISSUER,
        "aud": [AUDIENCE],
        "sub": "system:serviceaccount:shop:web",
        "exp": int(clock.now) + 600,
        "iat": int(clock.now),
        "nbf": int(clock.now),
        "kubernetes.io": {
            "namespace": "shop",
            "serviceaccount": {"name": "web", "uid": "1"},
            "pod": {"name": "web-1", "uid": "2"},
        },
    }
    return {name: value for name, value in (made | changes).items() if value is not ...}


def sign(content) -> str:
    return forging.es256(KEY, {"alg": "ES256"}, content)


def reason(checker, token) -> TokenReason:
    with pytest.raises(TokenRefused) as refused:
        checker.check_now(token)
    assert token not in str(refused.value)
    return refused.value.reason


async def test_a_token_of_the_issuer_identifies_its_pod(clock):
    issuer = TokenIssuer(clock=clock)
    token = issuer.issue(making.CALLER, lifetime=timedelta(hours=1))
    caller = await issuer.checker().check(token)
    assert msgspec.structs.replace(caller, expires=0.0) == making.CALLER
    assert 3600 <= caller.expires - clock.now <= 3601


def test_a_token_has_the_claims_that_kubernetes_gives_it(clock):
    token = TokenIssuer(clock=clock).issue(making.CALLER, lifetime=timedelta(hours=1))
    said = jwt.decode(token, options={"verify_signature": False})
    assert said.pop("jti")
    assert said.pop("exp") - said.pop("iat") in (3600, 3601)
    assert said.pop("nbf") <= clock.now
    assert said == {
        "iss": ISSUER,
        "aud": ["istio-ca"],
        "sub": "system:serviceaccount:shop:web",
        "kubernetes.io": {
            "namespace": "shop",
            "serviceaccount": {"name": "web", "uid": ""},
            "pod": {"name": making.CALLER.pod, "uid": making.CALLER.pod_uid},
        },
    }


def test_a_token_of_one_issuer_is_rejected_by_another(clock):
    token = TokenIssuer(clock=clock).issue(making.CALLER)
    assert reason(TokenIssuer(clock=clock).checker(), token) is TokenReason.UNKNOWN_KEY


def test_tokens_of_a_pod_that_is_gone_are_refused(clock):
    issuer = TokenIssuer(clock=clock)
    checker = issuer.checker()
    gone, stays = issuer.issue(making.CALLER), issuer.issue(Caller("shop", "web", "web-2", "uid-2"))
    issuer.revoke(making.CALLER.pod_uid)
    assert reason(checker, gone) is TokenReason.REVOKED
    assert checker.check_now(stays).pod == "web-2"
    with pytest.raises(ValueError, match="a new pod has a new UID"):
        issuer.issue(making.CALLER)


def test_what_was_revoked_is_remembered_for_as_long_as_a_token_could_be_shown(clock):
    issuer = TokenIssuer(clock=clock)
    checker = issuer.checker(leeway=timedelta(minutes=5))
    token = issuer.issue(making.CALLER, lifetime=timedelta(hours=1))
    issuer.revoke(making.CALLER.pod_uid)
    clock.advance(hours=1, minutes=4)
    issuer.revoke("another")
    assert reason(checker, token) is TokenReason.REVOKED
    clock.advance(minutes=2)
    issuer.revoke("another")
    assert not issuer._revoked
    assert reason(checker, token) is TokenReason.EXPIRED


@pytest.mark.parametrize(
    "caller",
    [
        Caller("shop", "web"),
        Caller("shop", "web", "web-1"),
        Caller("Shop", "web", "p", "u"),
        Caller("a:b", "c", "p", "u"),
    ],
)
def test_no_token_is_issued_that_every_checker_would_reject(caller):
    with pytest.raises(ValueError, match=r"pod|every checker"):
        TokenIssuer().issue(caller)


def test_a_valid_token_is_accepted(checker, clock):
    assert checker.check_now(sign(claims(clock))) == Caller("shop", "web", "web-1", "2", float(int(clock.now) + 600))
    assert checker.check_now(sign(claims(clock, aud=AUDIENCE)))
    assert checker.check_now(sign(claims(clock, aud=["other", AUDIENCE])))
    assert checker.check_now(sign(claims(clock, iat=..., nbf=...)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://weft.local/"}, TokenReason.ISSUER),
        ({"iss": "https://WEFT.local"}, TokenReason.ISSUER),
        ({"iss": [ISSUER]}, TokenReason.ISSUER),
        ({"iss": ...}, TokenReason.ISSUER),
        ({"aud": ["api"]}, TokenReason.AUDIENCE),
        ({"aud": []}, TokenReason.AUDIENCE),
        ({"aud": "istio"}, TokenReason.AUDIENCE),
        ({"aud": "xistio-cax"}, TokenReason.AUDIENCE),
        ({"aud": ...}, TokenReason.CLAIMS),
        ({"aud": None}, TokenReason.CLAIMS),
        ({"aud": {AUDIENCE: 1}}, TokenReason.CLAIMS),
        ({"aud": [AUDIENCE, 1]}, TokenReason.CLAIMS),
        ({"exp": ...}, TokenReason.CLAIMS),
        ({"exp": None}, TokenReason.CLAIMS),
        ({"exp": True}, TokenReason.CLAIMS),
        ({"exp": "9999999999"}, TokenReason.CLAIMS),
        ({"exp": "٩٩٩٩٩٩٩٩٩٩"}, TokenReason.CLAIMS),
        ({"exp": 10**400}, TokenReason.CLAIMS),
        ({"exp": 1e300}, TokenReason.CLAIMS),
        ({"exp": -1}, TokenReason.CLAIMS),
        ({"exp": [9999999999]}, TokenReason.CLAIMS),
        ({"nbf": "now"}, TokenReason.CLAIMS),
        ({"iat": None}, TokenReason.CLAIMS),
        ({"sub": "system:serviceaccount:shop:admin"}, TokenReason.SUBJECT),
        ({"sub": "system:serviceaccount:shop:web:"}, TokenReason.SUBJECT),
        ({"sub": ["system:serviceaccount:shop:web"]}, TokenReason.SUBJECT),
        ({"sub": ...}, TokenReason.SUBJECT),
        ({"kubernetes.io": ...}, TokenReason.CLAIMS),
        ({"kubernetes.io": "shop"}, TokenReason.CLAIMS),
        ({"kubernetes.io": []}, TokenReason.CLAIMS),
    ],
    ids=str,
)
def test_rejects_a_signed_token_with_wrong_claims(checker, clock, changes, why):
    assert reason(checker, sign(claims(clock, **changes))) is why


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("namespace", "admin", TokenReason.SUBJECT),
        ("namespace", "", TokenReason.CLAIMS),
        ("namespace", "a/b", TokenReason.CLAIMS),
        ("namespace", "a.b", TokenReason.CLAIMS),
        ("namespace", "shop\n", TokenReason.CLAIMS),
        ("namespace", "x" * 64, TokenReason.CLAIMS),
        ("namespace", 5, TokenReason.CLAIMS),
        ("serviceaccount", None, TokenReason.CLAIMS),
        ("serviceaccount", {"name": "admin"}, TokenReason.SUBJECT),
        ("serviceaccount", {"name": "../../ns/admin/sa/root"}, TokenReason.CLAIMS),
        ("serviceaccount", {"name": "web "}, TokenReason.CLAIMS),
        ("serviceaccount", {"name": ""}, TokenReason.CLAIMS),
        ("serviceaccount", {"name": "x" * 254}, TokenReason.CLAIMS),
        ("serviceaccount", {"name": ["web"]}, TokenReason.CLAIMS),
        ("pod", None, TokenReason.NOT_BOUND),
        ("pod", {}, TokenReason.NOT_BOUND),
        ("pod", {"name": "web-1"}, TokenReason.NOT_BOUND),
        ("pod", {"uid": "2"}, TokenReason.NOT_BOUND),
        ("pod", {"name": "web-1", "uid": ""}, TokenReason.NOT_BOUND),
        ("pod", {"name": "web-1", "uid": 2}, TokenReason.NOT_BOUND),
        ("pod", {"name": "web-1", "uid": "2" * 129}, TokenReason.NOT_BOUND),
    ],
)
def test_rejects_a_token_with_an_inconsistent_binding(checker, clock, path, value, why):
    said = claims(clock)
    said["kubernetes.io"][path] = value
    assert reason(checker, sign(said)) is why


def test_a_name_that_would_change_the_identity_is_refused_even_if_the_subject_agrees(checker, clock):
    said = claims(clock, sub="system:serviceaccount:shop:web/../admin")
    said["kubernetes.io"]["serviceaccount"]["name"] = "web/../admin"
    assert reason(checker, sign(said)) is TokenReason.CLAIMS


def test_clocks_may_differ_by_the_leeway_and_no_more(checker, clock):
    token = sign(claims(clock))
    clock.advance(seconds=600 + 28)
    assert checker.check_now(token)
    clock.advance(seconds=4)
    assert reason(checker, token) is TokenReason.EXPIRED
    for name in ("nbf", "iat"):
        assert checker.check_now(sign(claims(clock, **{name: int(clock.now) + 29})))
        assert reason(checker, sign(claims(clock, **{name: int(clock.now) + 32}))) is TokenReason.NOT_YET


def test_the_leeway_is_bounded():
    with pytest.raises(ValueError, match="leeway"):
        SignedTokens([], issuer=ISSUER, leeway=timedelta(hours=1))
    with pytest.raises(ValueError, match="neither may be empty"):
        SignedTokens([], issuer="")
    with pytest.raises(ValueError, match="neither may be empty"):
        SignedTokens([], issuer=ISSUER, audience="")


def test_without_keys_every_token_is_rejected(clock):
    assert reason(SignedTokens([], issuer=ISSUER, clock=clock), sign(claims(clock))) is TokenReason.ALGORITHM


def test_a_rejection_after_a_valid_signature_names_the_caller(checker, clock):
    with pytest.raises(TokenRefused) as refused:
        checker.check_now(sign(claims(clock, exp=int(clock.now) - 100)))
    assert refused.value.caller == Caller("shop", "web", "web-1", "2", float(int(clock.now) - 100))


def test_reads_its_keys_from_a_file(tmp_path, clock):
    path = tmp_path / "keys.pem"
    path.write_bytes(forging.public_pem(KEY))
    checker = SignedTokens.from_file(path, issuer=ISSUER)
    assert checker.check_now(sign(claims(clock))).namespace == "shop"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda each: (
        st.lists(each, max_size=4)
        | st.dictionaries(st.sampled_from(["namespace", "serviceaccount", "pod", "name", "uid", "x"]), each, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat", "kubernetes.io"]), JSON, min_size=1))
def test_only_complete_and_consistent_signed_tokens_are_accepted(changes):
    clock = making.Clock()
    checker = SignedTokens([token_key(KEY.public_key())], issuer=ISSUER, clock=clock)
    said = claims(clock, **changes)
    try:
        caller = checker.check_now(sign(json.dumps(said).encode()))
    except TokenRefused:
        return
    assert said["iss"] == ISSUER
    assert said["sub"] == f"system:serviceaccount:{caller.namespace}:{caller.service_account}"
    assert AUDIENCE in said["aud"]
    assert said["exp"] > clock.now - 31
    assert caller.pod_uid
