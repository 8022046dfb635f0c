"""The DNS servers on their thread, in a real network namespace, with a mesh whose engine is this test."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from ipaddress import IPv4Interface, IPv6Interface

import dns.message
import dns.query
import dns.rcode
import pytest
from msgspec import structs

from eventually import eventually
from weft.local.asker_limits import BURST
from weft.local.dns_thread import DnsThread
from weft.local.lookups import Lookups
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.service import Service, ServicePort
from weft.netns import links, namespace

pytestmark = pytest.mark.root

KEY = ObjectKey("Service", "shop", "web")
WEB = Service("web.shop.svc.cluster.local", "web", "shop", (ServicePort(80),), addresses=("10.96.1.1",))
POD, OTHER = "10.244.3.3", "10.244.3.4"


class Served:
    """A mesh of one service, its DNS, and two pods that ask."""

    def __init__(self):
        self.mesh, self.learned = Mesh(), []
        self.mesh.apply(KEY, (WEB,))
        self.lookups = Lookups(self.mesh, "cluster.local")
        self.dns = DnsThread(
            self.lookups, lambda addresses, asker: self.learned.append((addresses, asker, self._here()))
        )

    def _here(self):
        return threading.current_thread() is threading.main_thread()

    def change(self, **fields):
        self.mesh.apply(KEY, (structs.replace(WEB, **fields),))
        self.lookups.forget()


@pytest.fixture
async def served():
    suffix = os.urandom(3).hex()
    inside = namespace.make(f"wt-dnst-{suffix}")
    bridge = links.Bridge(inside, IPv4Interface("10.244.0.1/16"), IPv6Interface("fd00:10:244::1/64"))
    links.make_bridge(bridge)
    pods = {}
    for number, address in enumerate((POD, OTHER)):
        pods[address] = namespace.make(f"wt-dnst{number}-{suffix}")
        ipv6 = IPv6Interface(f"fd00:10:244::30{number}/64").ip
        links.connect(links.PodLink(pods[address], bridge, IPv4Interface(f"{address}/16").ip, ipv6))
    made = Served()
    made.pods = pods
    await made.dns.start(inside, ["10.244.0.1"])
    yield made
    await made.dns.close()
    for each in (*pods.values(), inside):
        namespace.delete(each)


def ask(served, pod=POD, name=WEB.host):
    query = dns.message.make_query(name, "A")
    response = namespace.run_in(served.pods[pod], lambda: dns.query.udp(query, "10.244.0.1", timeout=10))
    return response.rcode(), [record.to_text() for rrset in response.answer for record in rrset]


async def test_queries_are_answered_from_the_mesh_as_it_is_now(served):
    assert await asyncio.to_thread(ask, served) == (dns.rcode.NOERROR, ["10.96.1.1"])
    served.change(addresses=("10.96.1.2",))
    assert await asyncio.to_thread(ask, served) == (dns.rcode.NOERROR, ["10.96.1.2"])
    served.change(export_to=(".",))
    assert await asyncio.to_thread(ask, served) == (dns.rcode.NXDOMAIN, [])
    served.lookups.add((POD,), "shop")
    assert await asyncio.to_thread(ask, served) == (dns.rcode.NOERROR, ["10.96.1.1"])
    expected = [(("10.96.1.1",), POD, True), (("10.96.1.2",), POD, True), (("10.96.1.1",), POD, True)]
    await eventually(lambda: served.learned == expected)


async def test_an_engine_that_is_busy_does_not_delay_queries_for_names_that_have_not_changed(served):
    """The engine's event loop is this test's: it does nothing else until the answers have come."""
    await asyncio.to_thread(ask, served)
    answers = []
    asking = threading.Thread(target=lambda: answers.extend(ask(served) for _ in range(10)))
    asking.start()
    while asking.is_alive():
        time.sleep(0.01)  # blocks the event loop, on purpose
    assert answers == [(dns.rcode.NOERROR, ["10.96.1.1"])] * 10


async def test_a_flood_of_one_pod_does_not_take_answers_from_another(served):
    """The flood exceeds what one client may ask, and nothing limits the other pod."""
    wire = dns.message.make_query(WEB.host, "A").to_wire()

    def flood():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for _ in range(4 * int(BURST)):
                client.sendto(wire, ("10.244.0.1", 53))

    flooding = asyncio.create_task(asyncio.to_thread(namespace.run_in, served.pods[POD], flood))
    answers = [await asyncio.to_thread(ask, served, OTHER) for _ in range(50)]
    await flooding
    assert answers == [(dns.rcode.NOERROR, ["10.96.1.1"])] * 50


async def test_it_ends_and_leaves_no_thread(served):
    await served.dns.close()
    assert not any(thread.name == "weft-dns" for thread in threading.enumerate())
