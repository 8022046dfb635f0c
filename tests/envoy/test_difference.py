"""Differences between two dumps. tests/e2e tests that real Envoys report what they were sent."""

from __future__ import annotations

import copy

import pytest

from weft.envoy.difference import differences

PREFIX = "type.googleapis.com/envoy.admin.v3."


def dump(**changes):
    made = {
        "configs": [
            {
                "@type": PREFIX + "ClustersConfigDump",
                "dynamic_active_clusters": [
                    {"cluster": {"name": "a", "type": "EDS", "connect_timeout": "10s"}},
                    {"cluster": {"name": "passthrough", "type": "ORIGINAL_DST"}},
                ],
            },
            {
                "@type": PREFIX + "EndpointsConfigDump",
                "dynamic_endpoint_configs": [{"endpoint_config": assignment("a", "10.0.0.1")}],
            },
            {
                "@type": PREFIX + "ListenersConfigDump",
                "dynamic_listeners": [
                    {"name": "l", "active_state": {"listener": {"name": "l", "filters": ["x", "y"]}}}
                ],
            },
            {"@type": PREFIX + "RoutesConfigDump", "dynamic_route_configs": [{"route_config": {"name": "80"}}]},
        ]
    }
    return made | changes


def assignment(cluster, *addresses, **more):
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": each, "port_value": 80}}}, **more} for each in addresses
    ]
    return {"cluster_name": cluster, "endpoints": [{"locality": {}, "lb_endpoints": endpoints}]}


def said(sent, has):
    return [(each.kind, each.name, each.what) for each in differences(sent, has)]


@pytest.fixture
def has():
    return dump()


def test_equal_dumps_have_no_difference(has):
    assert differences(dump(), has) == []


def test_what_only_those_have_whose_first_call_was_held_is_no_difference(has):
    held = {"cluster": {"name": "hold|15001|10.96.0.1", "type": "ORIGINAL_DST"}}
    has["configs"][0]["dynamic_active_clusters"].append(held)
    assert differences(dump(), has) == []
    sent = dump()
    sent["configs"][0]["dynamic_active_clusters"].append(held)
    assert differences(sent, dump()) == []


def test_a_resource_in_only_one_dump_is_listed(has):
    has["configs"][0]["dynamic_active_clusters"][0]["cluster"]["name"] = "b"
    assert said(dump(), has) == [
        ("Clusters", "a", "missing"),
        ("Clusters", "b", "unknown"),
        ("Endpoints", "a", "missing"),
    ]


def test_the_places_that_differ_are_named(has):
    has["configs"][2]["dynamic_listeners"][0]["active_state"]["listener"] = {"name": "l", "filters": ["x"], "new": True}
    (found,) = differences(dump(), has)
    assert (found.kind, found.name, found.what) == ("Listeners", "l", "other")
    assert [(place.path, place.sent, place.has) for place in found.places] == [
        ("filters[1]", "y", None),
        ("new", None, True),
    ]


def test_many_places_are_cut_off(has):
    has["configs"][2]["dynamic_listeners"][0]["active_state"]["listener"]["filters"] = list("z" * 1_000)
    (found,) = differences(dump(), has)
    assert len(found.places) == 20


@pytest.mark.parametrize(("sent", "has_it", "same"), [(1.0, "1", True), ("1", 1, True), (1, 2, False), (True, 1, True)])
def test_a_number_is_the_same_however_it_is_spelt(has, sent, has_it, same):
    ours = copy.deepcopy(has)
    ours["configs"][3]["dynamic_route_configs"][0]["route_config"]["value"] = sent
    has["configs"][3]["dynamic_route_configs"][0]["route_config"]["value"] = has_it
    assert (differences(ours, has) == []) is same


def test_what_envoy_adds_to_endpoints_is_no_difference(has):
    entries = has["configs"][1]["dynamic_endpoint_configs"]
    entries[0]["endpoint_config"] = assignment("a", "10.0.0.1", health_status="HEALTHY", load_balancing_weight=1)
    entries.append({"endpoint_config": assignment("passthrough", "10.9.9.9")})
    assert differences(dump(), has) == []


def test_another_endpoint_is_a_difference(has):
    has["configs"][1]["dynamic_endpoint_configs"][0]["endpoint_config"] = assignment("a", "10.0.0.2")
    (found,) = differences(dump(), has)
    assert (found.kind, found.name) == ("Endpoints", "a")
    assert [place.path.split()[0] for place in found.places] == ["10.0.0.1:80", "10.0.0.2:80"]


def test_another_weight_is_a_difference(has):
    weighted = assignment("a", "10.0.0.1", load_balancing_weight=7)
    has["configs"][1]["dynamic_endpoint_configs"][0]["endpoint_config"] = weighted
    (found,) = differences(dump(), has)
    assert [(place.sent, place.has) for place in found.places] == [(1, 7)]


def test_the_state_that_envoy_reports_is_the_note_of_a_difference(has):
    listener = has["configs"][2]["dynamic_listeners"][0]
    listener["active_state"]["listener"]["filters"] = []
    listener["error_state"] = {"details": "no such filter"}
    assert "no such filter" in differences(dump(), has)[0].note
    del listener["error_state"]
    listener["warming_state"] = {}
    assert "still warming" in differences(dump(), has)[0].note
    has = dump()
    has["configs"][0]["dynamic_warming_clusters"] = [has["configs"][0]["dynamic_active_clusters"].pop(0)]
    assert "still warming" in differences(dump(), has)[0].note


def test_a_dump_of_nothing_lacks_everything():
    assert {each.what for each in differences(dump(), {})} == {"missing"}
    assert {each.what for each in differences({"configs": []}, dump())} == {"unknown"}
