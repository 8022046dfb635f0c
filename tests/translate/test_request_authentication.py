"""Tests read the translated filters only where a request cannot show the behaviour; the rest is a table of requests
through a real Envoy."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from google.protobuf.json_format import MessageToDict

from api.reading import value
from golden.render import compile_group
from model.builders import group, put, service
from translate.asking import Case, bearer, echo, judge
from translate.live import app, pair
from translate.tokens import EC_KEY, ED_KEY, ISSUER, OTHER_KEY, PARTNER, RSA_KEY, key_set, token
from weft.envoy.validate import validate
from weft.mesh.mesh import Mesh
from weft.model.access_log import FileLog
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Condition, Source
from weft.model.group import ProxyKind
from weft.model.names import labels_of
from weft.model.request_authentication import JwtRule, RequestAuthentication, TokenHeader
from weft.model.request_authentication import KeyServer as WrittenServer
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.request_authentication import clusters, filters
from weft.translate.tls import SYSTEM_ROOTS
from weft.translate.view import GroupView

KEYS = key_set(rsa=RSA_KEY, ec=EC_KEY, ed=ED_KEY)


def authentication(*rules, name="tokens", **more):
    return RequestAuthentication(name, more.pop("namespace", "shop"), rules=rules, **more)


def view(*found):
    return GroupView(ProxyKind.SIDECAR, (), OutboundPolicy.ALLOW_ANY, Settings(), authentication=found)


def check(*found):
    return JwtAuthentication.FromString(filters(view(*found))[-1].typed_config.value)


def required(*rules):
    (only,) = check(authentication(*rules)).rules
    return _short(MessageToDict(only.requires, preserving_proto_field_name=True))


def _short(requirement):
    if "provider_name" in requirement:
        return requirement["provider_name"].removeprefix("origins-")
    if "allow_missing" in requirement:
        return "none"
    (kind,) = requirement
    return {kind.removeprefix("requires_"): [_short(each) for each in requirement[kind]["requirements"]]}


# What is made


def test_without_rules_there_is_no_filter():
    assert filters(view()) == ()
    assert filters(view(authentication())) == ()


def test_rules_that_look_in_the_same_place_are_combined_as_in_istio():
    assert required(JwtRule("a")) == {"any": ["0", "none"]}
    each = {"all": [{"any": ["0", "none"]}, {"any": ["1", "none"]}]}
    assert required(JwtRule("a"), JwtRule("b")) == {"any": ["0", "1", each]}


def test_rules_that_look_in_different_places_are_required_separately():
    elsewhere = JwtRule("b", from_headers=(TokenHeader("x-b"),))
    assert required(JwtRule("a"), elsewhere) == {"all": [{"any": ["1", "none"]}, {"any": ["0", "none"]}]}
    bridge = JwtRule("c", from_headers=(TokenHeader("authorization", "Token "), TokenHeader("x-b")))
    assert list(required(JwtRule("a"), elsewhere, bridge)["any"][:3]) == ["0", "1", "2"]


def test_rules_of_all_objects_are_sorted_by_issuer():
    found = check(authentication(JwtRule("c"), JwtRule("a")), authentication(JwtRule("b"), name="more"))
    assert [found.providers[f"origins-{position}"].issuer for position in range(3)] == ["a", "b", "c"]


def test_every_path_is_checked_also_that_of_options_star():
    (only,) = check(authentication(JwtRule("a"))).rules
    assert only.match.HasField("prefix")
    assert only.match.prefix == ""  # `/` would leave out `OPTIONS *`


def test_scope_and_permission_are_always_lists():
    found = check(authentication(JwtRule("a", space_delimited_claims=("roles", "scope"))))
    claims = found.providers["origins-0"].normalize_payload_in_metadata.space_delimited_claims
    assert claims == ["permission", "roles", "scope"]


def test_a_header_that_carries_tokens_is_not_removed_for_another_rule():
    found = filters(
        view(
            authentication(
                JwtRule("a", from_headers=(TokenHeader("x_jwt"),)),
                JwtRule("b", claims_to_headers=(("sub", "x-jwt"), ("sub", "x-a.b"))),
            )
        )
    )
    assert len(found) == 2
    assert b"x[-_]a\\.b" in found[0].typed_config.value
    assert b"jwt" not in found[0].typed_config.value


def test_all_rules_with_one_key_server_share_its_cluster():
    server = WrittenServer("https://login.example.com/keys", "login.example.com", 443)
    other = WrittenServer("https://login.example.com/more", "login.example.com", 443)
    (made,) = clusters(view(authentication(JwtRule("a", key_server=server), JwtRule("b", key_server=other))))
    assert made.name == "jwks|443|https|login.example.com"
    tls = UpstreamTlsContext.FromString(Cluster.FromString(made.body).transport_socket.typed_config.value)
    assert tls.sni == "login.example.com"
    assert tls.common_tls_context.validation_context.trusted_ca.filename == SYSTEM_ROOTS
    (name,) = tls.common_tls_context.validation_context.match_typed_subject_alt_names
    assert name.matcher.exact == "login.example.com"


def test_a_key_server_in_the_mesh_is_called_through_its_own_cluster():
    server = WrittenServer("http://keys/", "keys.shop.svc.cluster.local", 80, tls=False, meshed=True)
    found = authentication(JwtRule("a", key_server=server, timeout=timedelta(seconds=2)))
    assert clusters(view(found)) == ()
    remote = check(found).providers["origins-0"].remote_jwks
    assert remote.http_uri.cluster == "outbound|80||keys.shop.svc.cluster.local"
    assert remote.http_uri.timeout.seconds == 2
    assert remote.async_fetch.fast_listener


# Requests


def _part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _coded(value):
    return base64.b64encode(json.dumps(value, separators=(",", ":")).encode()).decode()


def _unsigned(**header):
    claims = {"iss": ISSUER, "sub": "alice", "aud": "orders", "exp": int(time.time()) + 600}
    return f"{_part(header)}.{_part(claims)}"


def _signed_with_public_key(kid):
    """A token that a faulty server accepts: one that lets the token choose the algorithm and uses its public key as
    HMAC secret."""
    public = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = _unsigned(alg="HS256", typ="JWT", **({"kid": kid} if kid else {}))
    digest = hmac.new(public, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _tampered():
    head, _, signature = token().split(".")
    return f"{head}.{_part({'iss': ISSUER, 'sub': 'root', 'aud': 'orders'})}.{signature}"


NOT_A_TOKEN = "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"
NO_SUCH_KEY = "Jwks doesn't have key to match kid or alg from Jwt"
NO_SUCH_ISSUER = "Jwt issuer is not configured"
WRONG_SIGNATURE = "Jwt verification fails"
WRONG_AUDIENCE = "Audiences in Jwt are not allowed"


async def test_tokens_in_the_usual_places():
    now = int(time.time())
    preflight = (("origin", "https://shop.example.com"), ("access-control-request-method", "GET"))
    embedded = json.loads(key_set(rsa=OTHER_KEY))["keys"][0]
    cases = [
        Case("no token"),
        Case("a good one", (bearer(),), seen={"authorization": None}),
        Case("a good one, PS256", (bearer(algorithm="PS256"),)),
        Case("a good one, ES256", (bearer(EC_KEY, "ES256", "ec"),)),
        Case("a good one, EdDSA", (bearer(ED_KEY, "EdDSA", "ed"),)),
        Case("no key named", (bearer(kid=""),)),
        Case("no expiry", (bearer(exp=None),)),
        Case("expired", (bearer(exp=now - 120),), 401, why="Jwt is expired"),
        Case("expired within a minute of skew", (bearer(exp=now - 20),)),
        Case("not yet valid", (bearer(nbf=now + 300),), 401, why="Jwt not yet valid"),
        Case("an expiry that is no number", (bearer(exp="soon"),), 401),
        Case("another issuer", (bearer(iss="https://evil.example.com"),), 401, why=NO_SUCH_ISSUER),
        Case("an issuer that only begins so", (bearer(iss=ISSUER + "/"),), 401, why=NO_SUCH_ISSUER),
        Case("no issuer", (bearer(iss=None),), 401, why=NO_SUCH_ISSUER),
        Case("a list of issuers", (bearer(iss=[ISSUER]),), 401),
        Case("another audience", (bearer(aud="billing"),), 403, why=WRONG_AUDIENCE),
        Case("no audience", (bearer(aud=None),), 403, why=WRONG_AUDIENCE),
        Case("one audience of several", (bearer(aud=["billing", "orders"]),)),
        Case("signed by somebody else", (bearer(OTHER_KEY),), 401, why=WRONG_SIGNATURE),
        Case("signed by somebody else, no key named", (bearer(OTHER_KEY, kid=""),), 401),
        Case("claims changed after signing", (("authorization", f"Bearer {_tampered()}"),), 401, why=WRONG_SIGNATURE),
        Case("a key that is not there", (bearer(kid="new"),), 401, why=NO_SUCH_KEY),
        Case("a key of another type", (bearer(kid="ec"),), 401),
        Case("a path for a key", (bearer(kid="../../../../dev/null"),), 401, why=NO_SUCH_KEY),
        Case("its own key in its header", (bearer(OTHER_KEY, header={"jwk": embedded}),), 401, why=WRONG_SIGNATURE),
        Case("its own keys' address", (bearer(OTHER_KEY, header={"jku": "http://127.0.0.1:1/"}),), 401),
        Case("alg none", (("authorization", f"Bearer {_unsigned(alg='none')}."),), 401),
        Case("alg None", (("authorization", f"Bearer {_unsigned(alg='None', kid='rsa')}."),), 401),
        Case("no alg", (("authorization", f"Bearer {_unsigned(typ='JWT')}.AAAA"),), 401),
        Case("no signature", (("authorization", f"Bearer {token().rsplit('.', 1)[0]}."),), 401),
        Case("HS256, the public key as secret", (("authorization", f"Bearer {_signed_with_public_key('rsa')}"),), 401),
        Case("the same, no key named", (("authorization", f"Bearer {_signed_with_public_key('')}"),), 401),
        Case("five parts", (("authorization", f"Bearer {token()}.a.b"),), 401, why=NOT_A_TOKEN),
        Case("no token at all", (("authorization", "Bearer abc"),), 401, why=NOT_A_TOKEN),
        Case("an empty one", (("authorization", "Bearer "),), seen={"authorization": "Bearer"}),
        Case("another scheme is no token", (("authorization", "Basic YTpi"),), seen={"authorization": "Basic YTpi"}),
        Case("two headers, one bad", (bearer(), bearer(OTHER_KEY)), 401),
        Case("two headers are one bad one", (bearer(), bearer(sub="bob")), 401, why=NOT_A_TOKEN),
        Case("as a parameter", path=f"/a?b=c&access_token={token()}&d=e", line="GET /a?b=c&d=e HTTP/1.1"),
        Case("as a bad parameter", path=f"/a?access_token={token(OTHER_KEY)}", status=401, why=WRONG_SIGNATURE),
        Case("good header, bad parameter", (bearer(),), path=f"/?access_token={token(OTHER_KEY)}", status=401),
        Case("bad header, good parameter", (bearer(OTHER_KEY),), path=f"/?access_token={token()}", status=401),
        Case("both good", (bearer(),), path=f"/?access_token={token()}"),
        Case("elsewhere it is not looked for", (("x-token", "Bearer bad"), ("cookie", "access_token=bad"))),
        Case("a preflight is not asked", (*preflight, ("authorization", "Bearer bad")), method="OPTIONS"),
        Case("OPTIONS alone is", (("authorization", "Bearer bad"),), 401, method="OPTIONS"),
        Case("a path with tricks is", (("authorization", "Bearer bad"),), 401, path="//a/../b;c%2f"),
        Case("also an upgrade", (("authorization", "Bearer bad"), ("upgrade", "websocket"), ("connection", "upgrade")), 401),
    ]  # fmt: skip
    assert len(cases) >= 40
    await judge(cases, authentication(JwtRule(ISSUER, ("orders",), jwks=KEYS)))


async def test_tokens_in_configured_places_and_claims_for_the_application():
    claims = token(org={"team": "blue"}, admin=True, level=7, groups=["a"], half=0.5)
    payload = claims.split(".")[1]
    forged = (("x-sub", "root"), ("X-Claims", "root"), ("x-team", "red"), ("x_sub", "root"), ("X_Team", "red"))
    learned = {"x-sub": "alice", "x-team": "blue", "x-admin": "true", "x-level": "7", "x-claims": payload}
    coded = {"x-groups": _coded(["a"]), "x-org": _coded({"team": "blue"}), "x-nobody": None}
    nothing = dict.fromkeys(("x-sub", "x-team", "x-admin", "x-claims", "x_sub", "x_team"))
    preflight = (("origin", "https://shop.example.com"), ("access-control-request-method", "GET"))
    rule = JwtRule(
        ISSUER,
        jwks=KEYS,
        from_headers=(TokenHeader("x-jwt", "Token "), TokenHeader("x-alt")),
        from_params=("access",),
        from_cookies=("jwt",),
        forward_original_token=True,
        output_payload_header="x-claims",
        claims_to_headers=(
            *(("sub", "x-sub"), ("org.team", "x-team"), ("admin", "x-admin"), ("level", "x-level")),
            *(("groups", "x-groups"), ("org", "x-org"), ("nobody", "x-nobody")),
        ),
    )
    cases = [
        Case("no token, nothing learned", seen=nothing),
        Case("no token, all forged", forged, seen=nothing),
        Case("a preflight, all forged", (*preflight, *forged), method="OPTIONS", seen=nothing),
        Case("by header and prefix", (("x-jwt", f"Token {claims}"),), seen={"x-jwt": f"Token {claims}", **learned}),
        Case("by header without its prefix", (("x-jwt", claims),), seen={"x-jwt": claims, **nothing}),
        Case("by header and a wrong prefix", (("x-jwt", f"Bearer {claims}"),), seen=nothing),
        Case("by the other header", (("x-alt", claims),), seen={"x-alt": claims, **learned}),
        Case("bad in the other header", (("x-alt", "bad"),), 401, why=NOT_A_TOKEN),
        Case("by parameter", path=f"/?access={claims}", line=f"GET /?access={claims} HTTP/1.1", seen=learned),
        Case("bad parameter", path="/?access=bad", status=401),
        Case("by cookie", (("cookie", f"a=b; jwt={claims}"),), seen=learned),
        Case("bad cookie", (("cookie", "jwt=bad; a=b"),), 401),
        Case("good header, bad cookie", (("x-alt", claims), ("cookie", "jwt=bad")), 401),
        Case("the usual places do not count", (("authorization", "Bearer bad"),), path="/?access_token=bad"),
        Case("a good token, all forged", (("x-alt", claims), *forged), seen={**learned, "x_sub": None, "x_team": None}),
        Case("a claim that is not there, forged", (("x-alt", token()), *forged), seen={"x-sub": "alice", "x-team": None}),
        Case("lists and objects are written as base64 of JSON", (("x-alt", claims), ("x-groups", "b")), seen=coded),
        Case("a claim with a line break", (("x-alt", token(sub="alice\r\nx-admin: true")),), 503),
        Case("a claim with a null byte", (("x-alt", token(sub="alice\0")),), 503),
        Case("an empty claim, forged", (("x-alt", token(sub="")), *forged), seen={"x-sub": None}),
    ]  # fmt: skip
    await judge(cases, authentication(rule))


async def test_two_issuers_in_one_place():
    partner_keys = key_set(rsa=OTHER_KEY)
    cases = [
        Case("no token"),
        Case("of the first", (bearer(),), seen={"x-user": "alice", "x-partner": None}),
        Case("of the second", (bearer(OTHER_KEY, iss=PARTNER),), seen={"x-partner": "alice", "x-user": None}),
        Case("of neither", (bearer(iss="https://evil.example.com"),), 401, why=NO_SUCH_ISSUER),
        Case("of the second, by the first's key", (bearer(iss=PARTNER),), 401),
        Case("of the first, by the second's key", (bearer(OTHER_KEY),), 401),
        Case("of the second, expired", (bearer(OTHER_KEY, iss=PARTNER, exp=1),), 401),
        Case("of the first, for others", (bearer(aud="billing"),), 403),
        Case("of the second, for others", (bearer(OTHER_KEY, iss=PARTNER, aud="billing"),), 403),
        Case("of the first, forging what the second says", (bearer(), ("x-partner", "root")), seen={"x-partner": None}),
        Case("of both", (bearer(), bearer(OTHER_KEY, iss=PARTNER)), 401),
    ]
    await judge(
        cases,
        authentication(JwtRule(ISSUER, ("orders",), jwks=KEYS, claims_to_headers=(("sub", "x-user"),))),
        authentication(
            JwtRule(PARTNER, ("orders",), jwks=partner_keys, claims_to_headers=(("sub", "x-partner"),)),
            name="partner",
            namespace="istio-system",
        ),
    )


async def test_a_rule_without_an_issuer_accepts_tokens_of_any_issuer():
    cases = [
        Case("no token"),
        Case("of any issuer", (bearer(OTHER_KEY, iss="https://any.example.com"),), seen={"x-any": "alice"}),
        Case("without an issuer", (bearer(OTHER_KEY, iss=None),), seen={"x-any": "alice"}),
        Case("of the named issuer", (bearer(),), seen={"x-user": "alice", "x-any": None}),
        Case("of any issuer, by another key", (bearer(iss="https://any.example.com"),), 401),
        Case("of any issuer, expired", (bearer(OTHER_KEY, iss="https://any.example.com", exp=1),), 401),
    ]
    await judge(
        cases,
        authentication(
            JwtRule(ISSUER, jwks=KEYS, claims_to_headers=(("sub", "x-user"),)),
            JwtRule("", jwks=key_set(rsa=OTHER_KEY), claims_to_headers=(("sub", "x-any"),)),
        ),
    )


async def test_two_issuers_in_two_places():
    good, forged = token(OTHER_KEY, iss=PARTNER, sub="bob"), token(RSA_KEY, iss=PARTNER, sub="root")
    cases = [
        Case("no token"),
        Case("the first", (bearer(),), seen={"x-user": "alice", "authorization": None}),
        Case("the second", (("x-jwt", good),), seen={"x-partner": "bob", "x-jwt": None}),
        Case("each in the other's place", (("x-jwt", token()),), 401, why=NO_SUCH_ISSUER),
        Case("both", (bearer(), ("x-jwt", good)), seen={"x-user": "alice", "x-partner": "bob", "x-jwt": None}),
        Case("the first, and a forged second", (bearer(), ("x-jwt", forged)), 401, why=WRONG_SIGNATURE),
        Case("a forged first, and the second", (bearer(OTHER_KEY), ("x-jwt", good)), 401, why=WRONG_SIGNATURE),
    ]
    first = JwtRule(ISSUER, jwks=KEYS, claims_to_headers=(("sub", "x-user"),))
    second = JwtRule(
        PARTNER,
        jwks=key_set(rsa=OTHER_KEY),
        from_headers=(TokenHeader("x-jwt"),),
        claims_to_headers=(("sub", "x-partner"),),
    )
    await judge(cases, authentication(second, first))


async def test_a_rejected_object_denies_all_requests_and_the_log_names_it(tmp_path):
    preflight = (("origin", "https://shop.example.com"), ("access-control-request-method", "GET"))
    cases = [
        Case("no token", status=403, why="RBAC: access denied"),
        Case("a good token", (bearer(),), 403),
        Case("a preflight", preflight, 403, method="OPTIONS"),
    ]
    good = authentication(JwtRule(ISSUER, jwks=KEYS))
    log = tmp_path / "log"
    settings = Settings(logs=(FileLog(str(log), format="%RESPONSE_CODE_DETAILS%\n"),), listener_logs=False)
    await judge(cases, good, authentication(name="broken", refused=True), settings=settings)
    assert "rbac_access_denied_matched_policy[refused_RequestAuthentication_shop/broken]" in log.read_text()
    await judge([Case("others")], good, authentication(name="broken", refused=True, selector=labels_of({"app": "x"})))


@pytest.mark.parametrize(
    ("protocol", "refused", "heard"),
    [
        (Protocol.UNDECLARED, True, False),
        (Protocol.UNDECLARED, False, True),
        (Protocol.TCP, True, True),  # is declared not to be HTTP
    ],
)
async def test_a_rejected_object_also_denies_http_hidden_from_the_inspector(protocol, refused, heard):
    async with app(echo) as behind, pair(behind, authentication(refused=refused), protocol=protocol) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\r\nGET / HTTP/1.1\r\nhost: orders\r\n\r\n")
        try:
            said = await asyncio.wait_for(reader.read(), 15)
        except ConnectionResetError:
            said = b""
        writer.close()
        assert said.startswith(b"HTTP/1.1 200") is heard


async def test_policies_and_logs_read_the_claims_of_a_token(tmp_path):
    log = tmp_path / "log"
    line = "%REQ(X-CASE)% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(envoy.filters.http.jwt_authn)%\n"
    settings = Settings(logs=(FileLog(str(log), format=line),), listener_logs=False)
    partner = JwtRule(PARTNER, jwks=key_set(rsa=OTHER_KEY), from_headers=(TokenHeader("x-jwt"),))
    second = ("x-jwt", token(OTHER_KEY, iss=PARTNER, sub="bob"))
    cases = [
        Case("none"),
        Case("good", (bearer(scope="read write", roles="a b", exp=4e9),)),
        Case("both", (bearer(), second)),
        Case("bad", (bearer(exp=1),), 401),
    ]
    for case in cases:
        case.headers = (*case.headers, ("x-case", case.says))
    await judge(cases, authentication(JwtRule(ISSUER, jwks=KEYS), partner), settings=settings)
    # Each request is logged twice, by the caller's listener without any metadata.
    found = dict(line.split(" ", 1) for line in log.read_text().splitlines() if not line.endswith("via_upstream -"))
    assert "none" not in found
    assert json.loads(found["good"].removeprefix("via_upstream ")) == {
        "payload": {
            "iss": ISSUER,
            "sub": "alice",
            "aud": "orders",
            "exp": 4e9,
            "scope": ["read", "write"],
            "roles": "a b",
        }
    }
    assert '"iss":"https://login.example.com"' in found["both"]
    details, _, metadata = found["bad"].partition(" ")
    assert details == "jwt_authn_access_denied{Jwt_is_expired}"
    assert json.loads(metadata)["failure"]["message"] == "Jwt is expired"


async def test_policies_decide_by_the_claims_of_a_token():
    """Istio's way to require a token, and an ALLOW by its claims."""
    someone = AuthorizationPolicy(
        "someone", "shop", Action.DENY, rules=(AuthorizationRule((Source(not_request_principals=("*",)),)),)
    )  # fmt: skip
    by_claims = AuthorizationPolicy(
        "claims",
        "shop",
        rules=(
            AuthorizationRule(
                (Source(request_principals=(f"{ISSUER}/alice", f"{PARTNER}/*")),),
                conditions=(
                    Condition("request.auth.claims", ("groups",), ("admins", "ops-*")),
                    Condition("request.auth.claims", ("org", "team"), ("blue",)),
                    Condition("request.auth.audiences", values=("orders",)),
                    Condition("request.auth.claims", ("scope",), ("write",)),
                ),
            ),
        ),
    )
    fit = {"groups": ["users", "ops-eu"], "org": {"team": "blue"}, "scope": "read write"}
    denied = "RBAC: access denied"
    cases = [
        Case("no token", status=403, why=denied),
        Case("all that is asked", (bearer(**fit),)),
        Case("a group as text", (bearer(**fit | {"groups": "admins"}),)),
        Case("another subject", (bearer(sub="bob", **fit),), 403, why=denied),
        Case("another issuer's subject", (bearer(OTHER_KEY, iss=PARTNER, **fit),)),
        Case("no such group", (bearer(**fit | {"groups": ["users"]}),), 403),
        Case("another team", (bearer(**fit | {"org": {"team": "red"}}),), 403),
        Case("another audience", (bearer(aud="billing", **fit),), 403),
        Case("no such scope", (bearer(**fit | {"scope": "read writer"}),), 403),
        Case("a forged token is refused as such", (bearer(OTHER_KEY, **fit),), 401),
        Case("a scheme in lower case is no token", (("authorization", f"bearer {token(**fit)}"),), 403, why=denied),
    ]
    rules = JwtRule(ISSUER, jwks=KEYS), JwtRule(PARTNER, jwks=key_set(rsa=OTHER_KEY))
    await judge(cases, authentication(*rules), someone, by_claims)


async def test_envoy_accepts_every_object_that_the_reader_accepts():
    """If Envoy rejected one, the listener would stay unchanged, and the workload without its guard."""
    odd = "!#$%&'*+-.^_`|~09az"
    written = {
        "issuer": "ä☃'\"",
        "audiences": ["\n", "ä"],
        "jwks": KEYS,
        "fromHeaders": [{"name": odd, "prefix": "ä '\""}],
        "fromParams": ["ä&=\n"],
        "fromCookies": ["a;b=\n"],
        "outputPayloadToHeader": odd[::-1],
        "outputClaimToHeaders": [{"claim": "a.b\n", "header": f"{'-' * 250}{number}"} for number in range(400)],
        "spaceDelimitedClaims": ["ä"],
        "timeout": "80000h",
    }
    servers = (f"https://{'.'.join(['a' * 60] * 4)}:65535/%00?a", "http://[::ffff:192.0.2.1]", "https://192.0.2.1/")
    rules = [written, *({"issuer": "a", "jwksUri": uri} for uri in servers)]
    head = "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: a}\nspec: "
    mesh = Mesh()
    put(mesh, service("orders"), value(head + json.dumps({"jwtRules": rules})))
    found, _ = compile_group(mesh, group("orders"))
    assert await validate(listeners=found.listeners, clusters=found.clusters) == []
