"""Policies in force, read from config that weft's own translation produced."""

import json

import pytest
from google.protobuf.json_format import MessageToDict

from envoy_dumps import dump
from model.builders import group, put, service
from weft.cli.look.authz_check import policies
from weft.mesh.mesh import Mesh
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Operation
from weft.translate.authorization import http_filters, network_filters
from weft.translate.view import group_view

RULE = AuthorizationRule()
PATHS = AuthorizationRule(operations=(Operation(paths=("/a",)),))


def policy(name, action=Action.ALLOW, *rules, **more):
    return AuthorizationPolicy(name, "shop", action, rules=rules, **more)


def in_force(*written):
    mesh = Mesh()
    put(mesh, service("app"), *written)
    view = group_view(mesh, group("app"))
    manager = {"http_filters": [_written(each) for each in http_filters(view)]}
    chains = [
        {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]},
        {"filters": [_written(each) for each in network_filters(view)]},
    ]
    listener = {"name": "virtualInbound", "filter_chains": chains[:1], "default_filter_chain": chains[1]}
    found = policies(dump(ListenersConfigDump={"dynamic_listeners": [{"active_state": {"listener": listener}}]}))
    return [(action, name, len(rules)) for action, name, rules in found]


def _written(message):
    return MessageToDict(message, preserving_proto_field_name=True)


def test_each_policy_is_listed_once_with_its_rules_in_the_order_of_actions():
    assert in_force(
        policy("b", Action.ALLOW, RULE, RULE),
        policy("a", Action.ALLOW, RULE),
        policy("no", Action.DENY, RULE),
        policy("ask", Action.CUSTOM, RULE, provider="opa"),
        policy("note", Action.AUDIT, RULE),
    ) == [
        ("CUSTOM", "ask.shop", 1),
        ("AUDIT", "note.shop", 1),
        ("DENY", "no.shop", 1),
        ("ALLOW", "a.shop", 1),
        ("ALLOW", "b.shop", 2),
    ]


@pytest.mark.parametrize("action", [Action.ALLOW, Action.DENY, Action.CUSTOM])
def test_a_dry_run_is_marked(action):
    assert in_force(policy("try", action, RULE, dry_run=True)) == [(f"{action} (dry run)", "try.shop", 1)]


def test_closed_policies_and_guards_are_listed_too():
    found = in_force(policy("bad", Action.DENY, RULE, refused=True), policy("paths", Action.ALLOW, PATHS))
    assert ("DENY", "bad.shop", 1) in found
    assert ("ALLOW", "paths.shop", 1) in found
    assert len(found) == 3


def test_no_policy_is_in_force_by_default():
    assert in_force() == []


def test_a_kept_dump_is_read(weft, tmp_path):
    config = {"rules": {"policies": {"ns[shop]-policy[guard]-rule[0]": {}, "ns[shop]-policy[guard]-rule[1]": {}}}}
    filters = [{"name": "envoy.filters.network.rbac", "typed_config": config}]
    listener = {"name": "virtualInbound", "filter_chains": [{"filters": filters}]}
    said = dump(ListenersConfigDump={"dynamic_listeners": [{"active_state": {"listener": listener}}]})
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(said.document))
    done = weft("x", "authz", "check", "--file", file)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ACTION   AuthorizationPolicy   RULES\nALLOW    guard.shop            2\n"
    assert json.loads(weft("x", "authz", "check", "--file", file, "-o", "json").stdout)[0]["policy"] == "guard.shop"
