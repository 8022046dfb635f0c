import json
from ipaddress import ip_network

from weft.envoy import egress

RANGES = [ip_network("127.0.0.0/8"), ip_network("fe80::/10")]


def test_refused_ranges_have_a_filter_chain_without_an_upstream():
    listener = json.loads(egress.listeners("/run/x", RANGES))["resources"][0]
    (chain,) = listener["filter_chains"]
    assert chain["filter_chain_match"]["prefix_ranges"] == [
        {"address_prefix": "127.0.0.0", "prefix_len": 8},
        {"address_prefix": "fe80::", "prefix_len": 10},
    ]
    assert chain["filters"][0]["typed_config"]["cluster"] == "refused"
    clusters = {each["name"]: each for each in json.loads(egress.outside("/run/x"))["static_resources"]["clusters"]}
    assert "load_assignment" not in clusters["refused"]


def test_other_ranges_change_only_the_refusing_filter_chain():
    before, after = (json.loads(egress.listeners("/run/x", each))["resources"][0] for each in (RANGES, RANGES[:1]))
    assert before.pop("filter_chains") != after.pop("filter_chains")
    assert before == after


def test_the_inner_envoy_listens_at_each_address_of_the_bridge():
    (listener,) = json.loads(egress.inside("/run/x", ["10.244.0.1", "fd00::1"], 15009))["static_resources"]["listeners"]
    assert listener["address"]["socket_address"] == {"address": "10.244.0.1", "port_value": 15009}
    assert [each["address"]["socket_address"]["address"] for each in listener["additional_addresses"]] == ["fd00::1"]
