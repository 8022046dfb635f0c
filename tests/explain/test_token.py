import base64
import hashlib
import hmac
import json
import time

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication

from translate.asking import ask, guarded
from translate.tokens import EC_KEY, ED_KEY, ISSUER, OTHER_KEY, RSA_KEY, key_set, token
from weft.explain.jwt import refused
from weft.explain.listener import IncomingConnection
from weft.explain.request import Request, Speaks, headers_of
from weft.explain.rule import GuardInput
from weft.explain.token import read_token, wrong_signature
from weft.explain.walk import Walk
from weft.model.group import ProxyKind
from weft.model.request_authentication import JwtRule, RequestAuthentication
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.request_authentication import filters
from weft.translate.view import GroupView

BIG_KEY, LONG_KEY = ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 3072)
KEYS = key_set(rsa=RSA_KEY, ec=EC_KEY, big=BIG_KEY)


def _with_algorithm(key_set, algorithm):
    return json.dumps({"keys": [{**key, "alg": algorithm} for key in json.loads(key_set)["keys"]]})


def _part(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _claiming(header=None, **claims):
    """A token with a meaningless signature."""
    return f"{_part({'alg': 'RS256', **(header or {})})}.{_part({'iss': ISSUER, **claims})}.{_part(b'sig')}"


def _secret():
    signed = f"{_part({'alg': 'HS256'})}.{_part({'iss': ISSUER})}"
    return f"{signed}.{_part(hmac.new(b'secret', signed.encode(), hashlib.sha256).digest())}"


def _changed(text):
    head, _, signature = text.split(".")
    return f"{head}.{_part({'iss': ISSUER, 'sub': 'root', 'aud': 'orders'})}.{signature}"


NOW = int(time.time())
ASKED = {
    KEYS: [
        *(token(), token(kid=""), token(algorithm="RS384"), token(algorithm="RS512"), token(algorithm="PS256")),
        *(token(algorithm="PS384"), token(algorithm="PS512"), token(EC_KEY, "ES256", "ec")),
        *(token(BIG_KEY, "ES384", "big"), token(BIG_KEY, "ES384", ""), token(OTHER_KEY), token(OTHER_KEY, kid="")),
        *(token(kid="nobody"), token(kid="ec"), token(EC_KEY, "ES256", "rsa"), token(EC_KEY, "ES256", "big")),
        *(
            _changed(token()),
            _changed(token(EC_KEY, "ES256", "ec")),
            _secret(),
            token()[:-4],
            token() + ".",
            "." + token(),
        ),
        *(token(exp=NOW - 600), token(exp=0), token(exp=NOW - 30), token(nbf=NOW + 600), token(exp=1.5)),
        *(token(iss="https://nobody.example"), token(iss=None), token(aud="billing"), token(aud=["x", "orders"])),
        *(token(aud=None), token(OTHER_KEY, aud="billing"), token(OTHER_KEY, exp=NOW - 600)),
        *(_claiming({"alg": "none"}), _claiming({"alg": "HS1"}), _claiming({"kid": 7}), _claiming({"alg": 7})),
        *(_claiming(iss=7), _claiming(sub=[]), _claiming(exp="soon"), _claiming(exp=-1), _claiming(nbf=1e30)),
        *(_claiming(iat=True), _claiming(jti=1), _claiming(aud=7), _claiming(aud=["orders", 7]), _claiming(exp=None)),
        *("abc", "a.b", "a.b.c", f"{_part({'alg': 'RS256'})}.{_part(b'[]')}.c2ln", token().rsplit(".", 1)[0] + "."),
        token().rsplit(".", 1)[0] + ".a",
    ],
    key_set(ed=ED_KEY): [token(ED_KEY, "EdDSA", "ed"), token(ED_KEY, "EdDSA", ""), token(kid=""), token(kid="ed")],
    key_set(ed=ED_KEY, rsa=RSA_KEY): [token(kid=""), token(kid="rsa"), _changed(token(ED_KEY, "EdDSA", "ed"))],
    key_set(rsa=LONG_KEY, ed=ED_KEY): [token(LONG_KEY), token(), token(LONG_KEY, "PS512", "")],
    _with_algorithm(key_set(rsa=RSA_KEY), "RS256"): [token(), token(algorithm="PS256"), token(algorithm="RS512")],
    _with_algorithm(key_set(ec=EC_KEY), "ES256"): [token(EC_KEY, "ES256", "ec"), token(kid=""), token(kid="ec")],
}


async def test_tokens_are_accepted_and_rejected_as_by_envoy():
    wrong, fates = [], set()
    for keys, given in ASKED.items():
        authentication = RequestAuthentication("tokens", "shop", rules=(JwtRule(ISSUER, ("orders",), jwks=keys),))
        view = GroupView(ProxyKind.SIDECAR, (), OutboundPolicy.ALLOW_ANY, Settings(), authentication=(authentication,))
        config = JwtAuthentication.FromString(filters(view)[-1].typed_config.value)
        async with guarded(authentication) as port:
            for text in given:
                answer = await ask(port, headers=(("authorization", f"Bearer {text}"),))
                really = (answer.status, "" if answer.status == 200 else answer.body)
                told = _told(config, text)
                fates.add(really)
                if told != really:
                    wrong.append(f"{text}: {told} instead of {really}")
    assert not wrong, "\n".join(wrong)
    assert len(fates) >= 20


def _told(config, text):
    request = Request("orders", headers=(("authorization", f"Bearer {text}"),), now=int(time.time()))
    seen = GuardInput(IncomingConnection("10.0.0.9", "10.0.0.1", 80, Speaks.HTTP), headers=headers_of(request))
    found = refused(Walk(), config, request, seen)
    return (found.status, found.why) if found else (200, "")


def test_a_token_is_parsed_or_gets_envoys_error():
    read = read_token(token(sub="ann"))
    assert read.claims["sub"] == "ann" and read.signed and not read.malformed
    assert "3 sections" in read_token("a.b").malformed
    assert read_token("e30.e30.e30").malformed.startswith("Jwt header [alg]")
    assert read_token("Token e30.e30.e30").malformed == "Jwt header is an invalid JSON"  # the space is removed
    assert read_token("a=.b.c").malformed == "Jwt header is an invalid Base64url encoded"


def test_a_too_deeply_nested_payload_is_rejected():
    nested = _part(b'{"a":' + b"[" * 200_000)
    assert read_token(f"{_part({'alg': 'RS256'})}.{nested}.c2ln").malformed == "Jwt payload is an invalid JSON"


def test_an_invalid_key_verifies_nothing():
    strange = json.dumps({"keys": [{"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA"}, {"kty": "EC"}, {"kty": "X"}]})
    assert wrong_signature(token(EC_KEY, "ES256", ""), strange) == "Jwt verification fails"
