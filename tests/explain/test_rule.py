import pytest
from envoy.config.rbac.v3.rbac_pb2 import Permission, Principal
from google.protobuf.json_format import ParseDict

from weft.explain.decision import Unsure
from weft.explain.listener import IncomingConnection
from weft.explain.request import RequestHeaders, Speaks
from weft.explain.rule import GuardInput, is_, permits

IDENTITY = "spiffe://cluster.local/ns/shop/sa/frontend"


def seen(**more):
    connection = IncomingConnection("10.0.0.9", "10.0.0.1", 8080, Speaks.TLS, "orders.shop")
    headers = RequestHeaders([(":path", "/a?x"), (":method", "GET"), ("x-user", "alice")])
    return GuardInput(connection, (IDENTITY,), remote="192.0.2.7", headers=headers, **more)


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
    assert permits(ParseDict(permission, Permission()), seen()) is expected


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
    assert is_(ParseDict(principal, Principal()), seen(metadata={"f": {"k": "v"}})) is expected


def test_a_caller_without_a_certificate_has_no_principal():
    plain = GuardInput(IncomingConnection("10.0.0.9", "10.0.0.1", 80, Speaks.BYTES))
    assert not is_(ParseDict({"authenticated": {}}, Principal()), plain)
    assert not permits(ParseDict({"url_path": {"path": {"prefix": ""}}}, Permission()), plain)


def test_connect_matches_no_path_and_no_excluded_path():
    asking = GuardInput(
        seen().connection, (IDENTITY,), headers=RequestHeaders([(":path", "/"), (":method", "CONNECT")])
    )
    path = {"url_path": {"path": {"exact": "/"}}}
    assert not permits(ParseDict(path, Permission()), asking)
    assert permits(ParseDict({"not_rule": path}, Permission()), asking)
    assert not is_(ParseDict(path, Principal()), asking)


def test_an_unsupported_condition_is_unknown():
    with pytest.raises(Unsure):
        permits(Permission(), seen())
    with pytest.raises(Unsure):
        is_(Principal(), seen())
