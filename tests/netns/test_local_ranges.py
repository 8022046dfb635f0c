from ipaddress import ip_network

import pytest
from pyroute2 import IPRoute

from weft.netns.local_ranges import _read, local_ranges
from weft.netns.namespace import run_in_new

pytestmark = pytest.mark.root


def test_the_machines_own_addresses_are_local():
    ranges = local_ranges()
    assert ip_network("127.0.0.0/8") in ranges
    assert ip_network("0.0.0.0/0") not in ranges


def test_addresses_that_only_a_local_route_has_are_local_too():
    def work():
        with IPRoute() as netlink:
            netlink.link("set", index=1, state="up")
            netlink.addr("add", index=1, address="198.51.100.7", prefixlen=32)
            netlink.route("add", dst="203.0.113.0/24", type="local", scope="host", oif=1, table=255)
            netlink.route("add", dst="192.0.2.0/24", oif=1)
        return _read()

    ranges = run_in_new(work)
    assert {ip_network("198.51.100.7/32"), ip_network("203.0.113.0/24")} <= ranges
    assert ip_network("192.0.2.0/24") not in ranges
