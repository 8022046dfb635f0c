import asyncio
import errno
import socket
import struct
import subprocess
from ipaddress import IPv4Address

import pytest

import host
from weft.netns import links
from weft.netns import namespace as netns
from weft.netns.namespace import NetworkError, NetworkNamespace

pytestmark = pytest.mark.root


async def say_hello(listener, caller, family, address, port=8080):
    loop = asyncio.get_running_loop()
    with netns.socket_in(listener, family) as server, netns.socket_in(caller, family) as client:
        server.bind((str(address), port))
        server.listen()
        await asyncio.wait_for(loop.sock_connect(client, (str(address), port)), 30)
        accepted, peer = await asyncio.wait_for(loop.sock_accept(server), 30)
        accepted.close()
        return peer[0]


async def test_two_pods_talk_over_ipv4_and_ipv6(make_pods):
    _, (one, two) = make_pods()
    assert await say_hello(two.namespace, one.namespace, socket.AF_INET, two.ipv4) == str(one.ipv4)
    assert await say_hello(two.namespace, one.namespace, socket.AF_INET6, two.ipv6) == str(one.ipv6)


async def test_a_pod_reaches_the_bridge_and_the_bridge_a_pod(make_pods):
    bridge, (pod,) = make_pods(1)
    assert await say_hello(bridge.namespace, pod.namespace, socket.AF_INET, bridge.ipv4.ip, 53) == str(pod.ipv4)
    assert await say_hello(pod.namespace, bridge.namespace, socket.AF_INET6, pod.ipv6) == str(bridge.ipv6.ip)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "240.240.0.1"), (socket.AF_INET6, "2001:db8::1")])
async def test_a_call_to_an_unassigned_address_fails_at_once(make_pods, family, address):
    _, (pod,) = make_pods(1)
    with netns.socket_in(pod.namespace, family) as client, pytest.raises(OSError) as refusal:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(client, (address, 80)), 30)
    assert refusal.value.errno == errno.ECONNREFUSED


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "192.0.2.7"), (socket.AF_INET6, "2001:db8::7")])
async def test_it_fails_at_once_however_often_it_is_called(make_pods, family, address):
    """It must not retransmit, as it would if the kernel rate-limited the bridge's replies."""
    _, (pod,) = make_pods(1)
    for _ in range(30):
        with netns.socket_in(pod.namespace, family) as client:
            with pytest.raises(OSError):
                await asyncio.wait_for(asyncio.get_running_loop().sock_connect(client, (address, 80)), 30)
            info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            assert struct.unpack_from("=I", info, 100) == (0,)  # tcpi_total_retrans


def test_a_new_pod_can_bind_its_addresses_at_once(make_pods):
    _, (pod,) = make_pods(1)
    addresses = [(socket.AF_INET, pod.ipv4), (socket.AF_INET, "127.0.0.6")]
    addresses += [(socket.AF_INET6, pod.ipv6), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::6")]
    for family, address in addresses:
        with netns.socket_in(pod.namespace, family) as bound:
            bound.bind((str(address), 0))


def test_a_plain_user_may_listen_on_a_low_port(make_pods):
    _, (pod,) = make_pods(1)
    script = "import os, socket; os.setuid(4321); socket.create_server(('', 80)); print('bound')"
    command = ["nsenter", f"--net={pod.namespace.path}", "/usr/bin/env", "python3", "-c", script]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "bound\n"


def test_unassigned_addresses_are_routed_to_the_bridge(make_pods):
    bridge, (pod,) = make_pods(1)
    for target, gateway in (("240.240.0.1", bridge.ipv4.ip), ("2001:db8::1", bridge.ipv6.ip)):
        route = subprocess.run(
            ["ip", "-n", pod.namespace.name, "route", "get", target], capture_output=True, text=True
        ).stdout
        assert f"via {gateway} dev eth0" in route


async def test_meshes_with_the_same_addresses_do_not_meet(make_pods):
    before = host.network()
    _, (one, two) = make_pods()
    _, (other_one, other_two) = make_pods()
    assert (one.ipv4, two.ipv6) == (other_one.ipv4, other_two.ipv6)
    await say_hello(two.namespace, one.namespace, socket.AF_INET, two.ipv4)
    with netns.socket_in(two.namespace) as server, netns.socket_in(other_one.namespace) as client:
        server.bind(("0.0.0.0", 8081))
        server.listen()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.get_running_loop().sock_connect(client, (str(two.ipv4), 8081))
    assert host.network() == before


async def test_a_disconnected_pod_frees_its_place_at_once(make_pods, make_namespace):
    bridge, (one, two) = make_pods()
    links.disconnect(two)
    links.disconnect(two)
    successor = links.PodLink(make_namespace("pod"), bridge, two.ipv4, two.ipv6)
    links.connect(successor)
    assert await say_hello(successor.namespace, one.namespace, socket.AF_INET, two.ipv4) == str(one.ipv4)


def test_connecting_twice_names_the_namespace_and_the_next_command(make_pods):
    _, (pod,) = make_pods(1)
    with pytest.raises(NetworkError) as raised:
        links.connect(pod)
    assert str(pod.bridge.namespace) in str(raised.value)
    assert "ip -n" in raised.value.problem.hint


def test_connecting_to_nowhere_is_an_error(make_pods):
    bridge, _ = make_pods(0)
    with pytest.raises(NetworkError, match="weft-none"):
        links.connect(links.PodLink(NetworkNamespace("weft-none"), bridge, IPv4Address("10.97.1.1")))


async def test_many_pods_are_connected_at_the_same_time(make_pods, make_namespace):
    bridge, (first,) = make_pods(1)
    pods = [links.PodLink(make_namespace(), bridge, first.ipv4 + each, first.ipv6 + each) for each in range(1, 13)]
    await asyncio.gather(*(asyncio.to_thread(links.connect, pod) for pod in pods))
    for pod in pods:
        assert await say_hello(pod.namespace, first.namespace, socket.AF_INET6, pod.ipv6) == str(first.ipv6)
