"""Fixtures of real namespaces: unique names, and nothing left when a test ends."""

import itertools
import os
import signal
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

import pytest

from weft.netns import links
from weft.netns import namespace as netns

_numbers = itertools.count()


@pytest.fixture
def make_namespace():
    made = []

    def make(label="t"):
        made.append(netns.make(f"weft-test-{os.getpid()}-{next(_numbers)}-{label}"))
        return made[-1]

    yield make
    for namespace in made:
        for pid in netns.processes_in(namespace):
            os.kill(pid, signal.SIGKILL)
        netns.delete(namespace)


@pytest.fixture
def make_pods(make_namespace):
    """Pods on a bridge of their own, as (bridge, [pod, …])."""

    def make(count=2):
        bridge = links.Bridge(make_namespace("mesh"), IPv4Interface("10.97.0.1/16"), IPv6Interface("fd97::1/64"))
        links.make_bridge(bridge)
        pods = []
        for number in range(count):
            addresses = IPv4Address("10.97.1.1") + number, IPv6Address("fd97::101") + number
            pods.append(links.PodLink(make_namespace("pod"), bridge, *addresses))
            links.connect(pods[-1])
        return bridge, pods

    return make
