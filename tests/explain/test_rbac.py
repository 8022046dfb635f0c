import pytest
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.rbac.v3.rbac_pb2 import Permission, Principal
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network
from google.protobuf.json_format import ParseDict

from weft.explain.decision import Unsure
from weft.explain.listener import Connection
from weft.explain.rbac import HTTP_FILTER, Seen, denied, effective, is_, permits
from weft.explain.request import Headers, Speaks
from weft.explain.walk import Walk

IDENTITY = "spiffe://cluster.local/ns/shop/sa/frontend"
ANY = {"permissions": [{"any": True}], "principals": [{"any": True}]}
NOBODY = {"permissions": [{"not_rule": {"any": True}}], "principals": [{"any": True}]}


def _seen(**more):
    connection = Connection("10.0.0.9", "10.0.0.1", 8080, Speaks.TLS, "orders.shop")
    headers = Headers([(":path", "/a?x"), (":method", "GET"), ("x-user", "alice")])
    return Seen(connection, (IDENTITY,), remote="192.0.2.7", headers=headers, **more)


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        ({"any": True}, True),
        ({"not_rule": {"any": True}}, False),
        ({"and_rules": {"rules": [{"any": True}, {"destination_port": 80}]}}, False),
        ({"or_rules": {"rules": [{"destination_port": 80}, {"destination_port": 8080}]}}, True),
        ({"header": {"name": ":method", "string_match": {"exact": "GET"}}}, True),
        ({"url_path": {"path": {"exact": "/a"}}}, True),
        ({"destination_ip": {"address_prefix": "10.0.0.0", "prefix_len": 24}}, True),
        ({"destination_port_range": {"start": 8000, "end": 8080}}, False),
        ({"requested_server_name": {"suffix": ".shop"}}, True),
        ({"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"present_match": True}}}, False),
    ],
)
def test_permissions(permission, expected):
    assert permits(ParseDict(permission, Permission()), _seen()) is expected


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ({"any": True}, True),
        ({"not_id": {"any": True}}, False),
        ({"authenticated": {}}, True),
        ({"authenticated": {"principal_name": {"exact": IDENTITY}}}, True),
        ({"authenticated": {"principal_name": {"exact": "other"}}}, False),
        (
            {
                "and_ids": {
                    "ids": [{"any": True}, {"direct_remote_ip": {"address_prefix": "10.0.0.9", "prefix_len": 32}}]
                }
            },
            True,
        ),
        ({"or_ids": {"ids": [{"remote_ip": {"address_prefix": "192.0.2.0", "prefix_len": 24}}]}}, True),
        ({"header": {"name": "x-user", "present_match": True}}, True),
        ({"metadata": {"filter": "f", "path": [{"key": "k"}], "value": {"string_match": {"exact": "v"}}}}, True),
    ],
)
def test_principals(principal, expected):
    assert is_(ParseDict(principal, Principal()), _seen(metadata={"f": {"k": "v"}})) is expected


def test_who_shows_no_certificate_has_no_name():
    seen = Seen(Connection("10.0.0.9", "10.0.0.1", 80, Speaks.BYTES))
    assert not is_(ParseDict({"authenticated": {}}, Principal()), seen)
    assert not permits(ParseDict({"url_path": {"path": {"prefix": ""}}}, Permission()), seen)


def test_a_question_that_is_not_known_is_not_guessed():
    with pytest.raises(Unsure):
        permits(Permission(), _seen())
    with pytest.raises(Unsure):
        is_(Principal(), _seen())


def _denied(rules, kind=RBAC, **more):
    walk = Walk()
    return denied(walk, ParseDict({**({"rules": rules} if rules else {}), **more}, kind()), _seen()), walk.steps


def test_what_nothing_allows_is_denied():
    assert _denied({"policies": {"a": NOBODY}})[0] == "rbac_access_denied_matched_policy[none]"
    assert _denied({"policies": {"a": NOBODY, "b": ANY}})[0] is None
    assert _denied({})[0] is None


def test_what_denies_says_its_name():
    name = "ns[shop]-policy[p]-rule[0]"
    why, (step,) = _denied({"action": "DENY", "policies": {name: ANY}})
    assert why == f"rbac_access_denied_matched_policy[{name}]"
    assert str(step.sources[0]) == "AuthorizationPolicy shop/p rule[0]" and step.what == "p rule[0] denies it"
    assert _denied({"action": "DENY", "policies": {"a b": ANY}})[0].endswith("[a_b]")
    assert _denied({"action": "DENY", "policies": {name: NOBODY}})[0] is None


def test_the_first_by_name_is_the_effective_one():
    assert effective(ParseDict({"policies": {"b": ANY, "a": ANY, "0": NOBODY}}, rbac_pb2.RBAC()), _seen()) == "a"


def test_what_only_logs_lets_pass():
    why, steps = _denied({"action": "LOG", "policies": {"a": ANY}})
    assert why is None and "log" in steps[0].what


@pytest.mark.parametrize("kind", [RBAC, network.RBAC])
def test_shadow_rules_leave_a_note_and_nothing_else(kind):
    seen = _seen()
    shadow = {"action": "DENY", "policies": {"a": ANY}}
    config = ParseDict({"shadow_rules": shadow, "shadow_rules_stat_prefix": "dry_"}, kind())
    assert denied(Walk(), config, seen) is None
    (notes,) = seen.metadata.values()
    assert notes == {"dry_shadow_engine_result": "denied", "dry_shadow_effective_policy_id": "a"}
    assert (HTTP_FILTER in seen.metadata) is (kind is RBAC)
