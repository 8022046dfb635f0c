from __future__ import annotations

import asyncio
import os
import socket
import struct
from ipaddress import IPv4Interface, IPv6Interface

import dns.flags
import dns.message
import dns.query
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.local.asker_limits import MOST_FORWARDED
from weft.local.dns import DnsServer, HostResolvers, resolver_file
from weft.netns import links, namespace
from weft.translate.lookup import Answer, Found, NoSuchName, NotOurs

NAMES: dict[str, Answer] = {
    "payments.shop.svc.cluster.local": Found(("10.96.1.1", "fd00:10:96::1")),
    "old.shop.svc.cluster.local": Found(("10.96.1.2",)),
    "1.1.96.10.in-addr.arpa": Found(names=("payments.shop.svc.cluster.local",)),
    "gone.shop.svc.cluster.local": NoSuchName(),
    "many.shop.svc.cluster.local": Found(tuple(f"10.244.1.{number}" for number in range(1, 200))),
}


async def look_up(name: str, asker: str) -> Answer:
    return NAMES.get(name, NotOurs())


@pytest.fixture
async def upstream():
    """A resolver on the host's loopback that answers every A query with 192.0.2.7 and the TTL 4321, by which its
    answers are recognized."""

    def answer(wire: bytes) -> bytes:
        query = dns.message.from_wire(wire)
        response = dns.message.make_response(query, recursion_available=True)
        response.answer.append(dns.rrset.from_text(query.question[0].name, 4321, "IN", "A", "192.0.2.7"))
        return response.to_wire()

    class Protocol(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, addr):
            self.transport.sendto(answer(data), addr)

    async def serve(reader, writer):
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        reply = answer(await reader.readexactly(length))
        writer.write(struct.pack("!H", len(reply)) + reply)
        await writer.drain()
        writer.close()

    loop = asyncio.get_running_loop()
    # The TCP socket is bound first, with a free port: ended TCP connections occupy thousands of ports for a minute,
    # while the same UDP port is almost always free.
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_datagram_endpoint(Protocol, local_addr=("127.0.0.1", port))
    yield ("127.0.0.1", port)
    transport.close()
    server.close()


@pytest.fixture
async def served(upstream):
    """The DNS server on a bridge, and a pod on that bridge that sends queries."""
    suffix = os.urandom(3).hex()
    mesh, pod = namespace.make(f"wt-dns-{suffix}"), namespace.make(f"wt-dnsp-{suffix}")
    bridge = links.Bridge(mesh, IPv4Interface("10.244.0.1/16"), IPv6Interface("fd00:10:244::1/64"))
    links.make_bridge(bridge)
    ipv4, ipv6 = IPv4Interface("10.244.3.3/16").ip, IPv6Interface("fd00:10:244::303/64").ip
    links.connect(links.PodLink(pod, bridge, ipv4, ipv6))
    server = DnsServer(look_up, lambda: [upstream])
    await server.listen(mesh, ["10.244.0.1", "fd00:10:244::1"])
    yield pod
    await server.close()
    namespace.delete(pod)
    namespace.delete(mesh)


async def ask(pod, name: str, record: str = "A", *, tcp: bool = False, server: str = "10.244.0.1", edns: int = -1):
    query = dns.message.make_query(name, record, use_edns=edns)
    how = dns.query.tcp if tcp else dns.query.udp
    return await asyncio.to_thread(namespace.run_in, pod, lambda: how(query, server, timeout=5))


def texts(response) -> list[str]:
    return [record.to_text() for rrset in response.answer for record in rrset]


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
@pytest.mark.parametrize("server", ["10.244.0.1", "fd00:10:244::1"])
async def test_answers_both_families_over_udp_and_tcp(served, tcp, server):
    name = "payments.shop.svc.cluster.local"
    assert texts(await ask(served, name, tcp=tcp, server=server)) == ["10.96.1.1"]
    assert texts(await ask(served, name.upper(), "AAAA", tcp=tcp, server=server)) == ["fd00:10:96::1"]


async def test_a_name_without_the_queried_family_is_empty_and_an_unknown_one_is_nxdomain(served):
    empty = await ask(served, "old.shop.svc.cluster.local", "AAAA")
    assert (empty.rcode(), texts(empty)) == (dns.rcode.NOERROR, [])
    other_type = await ask(served, "old.shop.svc.cluster.local", "MX")
    assert (other_type.rcode(), texts(other_type)) == (dns.rcode.NOERROR, [])
    assert (await ask(served, "gone.shop.svc.cluster.local")).rcode() == dns.rcode.NXDOMAIN


async def test_a_reverse_lookup_returns_the_name_only_for_ptr_queries(served):
    assert texts(await ask(served, "1.1.96.10.in-addr.arpa", "PTR")) == ["payments.shop.svc.cluster.local."]
    assert texts(await ask(served, "1.1.96.10.in-addr.arpa", "A")) == []


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
async def test_other_names_are_answered_by_the_machines_own_resolver_unchanged(served, tcp):
    response = await ask(served, "example.com", tcp=tcp)
    assert texts(response) == ["192.0.2.7"]
    assert response.answer[0].ttl == 4321


async def test_an_answer_too_big_for_a_datagram_is_truncated_and_whole_over_tcp(served):
    short = await ask(served, "many.shop.svc.cluster.local")
    assert short.flags & dns.flags.TC
    assert len(texts(await ask(served, "many.shop.svc.cluster.local", tcp=True))) == 199


async def test_garbage_is_rejected_and_the_next_query_answered(served):
    def send_garbage():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for wire in (b"", b"\0", b"\xff" * 40, b"\0\1\1\0" + b"\0\1\0\0\0\0\0\0" + b"\xc0\x0c\0\1\0\1"):
                client.sendto(wire, ("10.244.0.1", 53))

    await asyncio.to_thread(namespace.run_in, served, send_garbage)
    assert texts(await ask(served, "payments.shop.svc.cluster.local")) == ["10.96.1.1"]


async def test_returns_servfail_when_no_resolver_answers(monkeypatch):
    monkeypatch.setattr("weft.local.dns._UPSTREAM_TIMEOUT", 0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        server = DnsServer(look_up, lambda: [silent.getsockname()])
        query = dns.message.make_query("example.com", "A")
        answer = await server.answer(query.to_wire(), "10.244.1.1", over_tcp=False)
    assert answer is not None
    assert dns.message.from_wire(answer).rcode() == dns.rcode.SERVFAIL
    assert dns.message.from_wire(answer).id == query.id


async def test_many_unanswered_upstream_queries_do_not_block_queries_for_the_mesh():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        server = DnsServer(look_up, upstreams=lambda: [silent.getsockname()])
        outside = dns.message.make_query("example.com", "A").to_wire()
        asked = [asyncio.create_task(server.answer(outside, f"10.244.0.{n % 8}", over_tcp=False)) for n in range(200)]
        refused, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert (len(refused), len(waiting)) == (72, 128)
        assert {dns.message.from_wire(each.result()).rcode() for each in refused} == {dns.rcode.SERVFAIL}
        ours = dns.message.make_query("payments.shop.svc.cluster.local", "A").to_wire()
        answer = await server.answer(ours, "10.244.0.2", over_tcp=False)
        assert dns.message.from_wire(answer).answer[0][0].address == "10.96.1.1"
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert server._asked == 0


async def test_slow_lookups_and_connections_of_one_client_leave_room_for_others(monkeypatch):
    """No resolver answers: every query for another name stays in progress."""
    asked = []

    async def never(upstream, wire):
        asked.append(wire)
        await asyncio.Event().wait()

    monkeypatch.setattr("weft.local.dns._ask_over_udp", never)
    server = DnsServer(look_up, lambda: [("127.0.0.1", 1)])
    wire = dns.message.make_query("elsewhere.example.com", "A").to_wire()
    flood = [asyncio.ensure_future(server.answer(wire, "10.0.0.1", over_tcp=False)) for _ in range(1_000)]
    other = asyncio.ensure_future(server.answer(wire, "10.0.0.2", over_tcp=False))
    await asyncio.sleep(0)
    refused = [task for task in flood if task.done()]
    assert len(refused) == 1_000 - MOST_FORWARDED and not other.done() and len(asked) == MOST_FORWARDED + 1
    assert {dns.message.from_wire(task.result()).rcode() for task in refused} == {dns.rcode.SERVFAIL}
    for task in (*flood, other):
        task.cancel()
    await asyncio.gather(*flood, other, return_exceptions=True)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_do_not_raise(wire):
    answer = asyncio.run(DnsServer(look_up, list).answer(wire, "10.244.1.1", over_tcp=False))
    assert answer is None or answer[:2] == wire[:2]


def test_reads_the_machines_resolvers_again_when_they_change(tmp_path):
    file = tmp_path / "resolv.conf"
    file.write_text("# comment\nnameserver 192.0.2.1\nnameserver\nnameserver 2001:db8::1\n")
    resolvers = HostResolvers(file)
    assert list(resolvers()) == [("192.0.2.1", 53), ("2001:db8::1", 53)]
    replacement = tmp_path / "new"
    replacement.write_text("nameserver 192.0.2.2\n")
    replacement.rename(file)
    assert list(resolvers()) == [("192.0.2.2", 53)]
    file.unlink()
    assert list(resolvers()) == []


def test_a_pods_resolver_file_searches_its_namespace_first():
    assert "search shop.svc.cluster.local svc.cluster.local cluster.local" in resolver_file(
        "10.244.0.1", "shop", "cluster.local"
    )


async def test_the_callback_reports_only_queries_that_returned_an_address():
    learned = []
    server = DnsServer(look_up, lambda: (), lambda addresses, asker: learned.append((addresses, asker)))
    for name, kind in (
        ("payments.shop.svc.cluster.local", "A"),
        ("payments.shop.svc.cluster.local", "TXT"),
        ("gone.shop.svc.cluster.local", "A"),
        ("1.1.96.10.in-addr.arpa", "PTR"),
    ):
        await server.answer(dns.message.make_query(name, kind).to_wire(), "10.244.0.7", over_tcp=False)
    assert learned == [(("10.96.1.1", "fd00:10:96::1"), "10.244.0.7")]
