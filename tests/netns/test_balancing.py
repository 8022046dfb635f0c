from __future__ import annotations

import os
import socket
from collections import Counter
from contextlib import closing
from ipaddress import IPv4Interface, IPv6Interface, ip_address

import pytest

from weft.netns import links, namespace
from weft.netns.balancing import VirtualAddress, balance, rules

pytestmark = pytest.mark.root


@pytest.fixture
def wire():
    """A bridge with three pods: .2 and .3 answer with their own address, .4 is the caller."""
    suffix = os.urandom(3).hex()
    mesh = namespace.make(f"wt-bal-{suffix}")
    bridge = links.Bridge(mesh, IPv4Interface("10.244.0.1/16"), IPv6Interface("fd00:10:244::1/64"))
    links.make_bridge(bridge)
    pods = []
    for number in (2, 3, 4):
        pod = namespace.make(f"wt-bal{number}-{suffix}")
        ipv4, ipv6 = ip_address(f"10.244.0.{number}"), ip_address(f"fd00:10:244::{number}")
        links.connect(links.PodLink(pod, bridge, ipv4, ipv6))
        pods.append(pod)
    yield mesh, pods
    for each in (*pods, mesh):
        namespace.delete(each)


def listen(pod, family, kind=socket.SOCK_STREAM) -> socket.socket:
    made = namespace.socket_in(pod, family, kind)
    made.bind(("::" if family == socket.AF_INET6 else "", 8080))
    if kind == socket.SOCK_STREAM:
        made.listen(64)
    return made


def connect(pod, family, address: str, port: int) -> None:
    with closing(namespace.socket_in(pod, family)) as client:
        client.setblocking(True)
        client.settimeout(30)
        client.connect((address, port))


@pytest.mark.parametrize(
    ("family", "address", "targets"),
    [
        (socket.AF_INET, "10.96.0.9", ("10.244.0.2", "10.244.0.3")),
        (socket.AF_INET6, "fd00:10:96::9", ("fd00:10:244::2", "fd00:10:244::3")),
    ],
    ids=["IPv4", "IPv6"],
)
def test_connections_to_a_virtual_address_are_shared_among_its_pods(wire, family, address, targets):
    mesh, (first, second, caller) = wire
    balance(mesh, [VirtualAddress(address, 80, tuple((each, 8080) for each in targets))])
    with closing(listen(first, family)) as one, closing(listen(second, family)) as two:
        for _ in range(40):
            connect(caller, family, address, 80)
        reached: Counter[str] = Counter()
        for name, server in (("one", one), ("two", two)):
            while True:
                try:
                    server.accept()[0].close()
                except BlockingIOError:
                    break
                reached[name] += 1
    assert sum(reached.values()) == 40
    assert min(reached["one"], reached["two"]) >= 5  # fewer than that happens once in a million runs


def test_udp_is_balanced_as_well(wire):
    mesh, (first, _, caller) = wire
    balance(mesh, [VirtualAddress("10.96.0.9", 53, (("10.244.0.2", 8080),), "udp")])
    client = namespace.socket_in(caller, socket.AF_INET, socket.SOCK_DGRAM)
    with closing(client), closing(listen(first, socket.AF_INET, socket.SOCK_DGRAM)) as server:
        client.sendto(b"hello", ("10.96.0.9", 53))
        server.setblocking(True)
        server.settimeout(30)
        assert server.recvfrom(100)[0] == b"hello"


def test_an_address_without_pods_fails_at_once(wire):
    mesh, (_, _, caller) = wire
    balance(mesh, [VirtualAddress("10.96.0.9", 80, (("10.244.0.2", 8080),))])
    balance(mesh, [])
    with pytest.raises(OSError, match="refused"):
        connect(caller, socket.AF_INET, "10.96.0.9", 80)


def test_each_target_is_equally_likely():
    text = rules([VirtualAddress("10.96.0.9", 80, (("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)))])
    assert "probability 0.3333333333" in text and "probability 0.5000000000" in text
    assert "--dport 80 -j DNAT --to-destination 10.0.0.3:3" in text
