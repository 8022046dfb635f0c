"""What a way out refuses. Calls through it are in `e2e/test_egress.py`."""

from __future__ import annotations

import asyncio
import json
import os
from ipaddress import IPv4Interface, ip_address, ip_network

import pytest

from eventually import eventually
from weft.envoy import binary, egress
from weft.local import egress as module
from weft.local.egress import Egress, way_out
from weft.netns import namespace
from weft.netns.links import Bridge, make_bridge

pytestmark = pytest.mark.root


@pytest.fixture
def bridge():
    made = Bridge(namespace.make(f"wt-egress-{os.urandom(3).hex()}"), IPv4Interface("10.244.0.1/16"))
    make_bridge(made)
    yield made
    namespace.delete(made.namespace)


def refused(tmp_path):
    text = (tmp_path / "egress" / egress.OUTSIDE_DIRECTORY / egress.LISTENERS).read_text()
    ranges = json.loads(text)["resources"][0]["filter_chains"][0]["filter_chain_match"]["prefix_ranges"]
    return [ip_network(f"{each['address_prefix']}/{each['prefix_len']}") for each in ranges]


async def test_the_machines_own_addresses_are_refused_also_those_that_it_gets_later(tmp_path, bridge, monkeypatch):
    tmp_path.chmod(0o755)
    own = {ip_network("198.51.100.7/32")}
    monkeypatch.setattr(module, "local_ranges", lambda: frozenset(own))
    monkeypatch.setattr(module, "_LOOK", 0.01)
    way = Egress(binary.find(), tmp_path, bridge)
    await way.start()
    keeping = None
    try:
        for address in (
            "198.51.100.7",
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "10.244.3.4",
            "0.0.0.0",
            "::ffff:7f00:1",
        ):
            assert any(
                ip_address(address) in each for each in refused(tmp_path) if each.version == ip_address(address).version
            )
        assert not any(ip_address("203.0.113.5") in each for each in refused(tmp_path) if each.version == 4)
        keeping = asyncio.create_task(way.keep())
        own.add(ip_network("198.51.100.9/32"))
        await eventually(lambda: ip_network("198.51.100.9/32") in refused(tmp_path))
        assert way.problems() == ()
    finally:
        if keeping is not None:
            keeping.cancel()
        await way.close()


async def test_an_envoy_that_cannot_run_is_a_problem_of_the_mesh(tmp_path, bridge):
    tmp_path.chmod(0o755)
    way = Egress(tmp_path / "no-envoy", tmp_path, bridge)
    await way.start()
    try:
        await eventually(lambda: len(way.problems()) == 2)
        assert all("pods cannot reach hosts outside the mesh" in problem.what for problem in way.problems())
    finally:
        await way.close()


def test_only_connections_that_leave_the_mesh_are_redirected():
    way = way_out(["10.244.0.1", "fd00:10:244::1"], "weft0")
    assert list(way.rules(4)) == [
        "-A PREROUTING -i weft0 -d 10.244.0.0/16 -j RETURN",
        "-A PREROUTING -i weft0 -d 10.96.0.0/16 -j RETURN",
        "-A PREROUTING -i weft0 -p tcp -j DNAT --to-destination 10.244.0.1:15009",
    ]
    assert list(way.rules(6))[-1].endswith("--to-destination [fd00:10:244::1]:15009")
