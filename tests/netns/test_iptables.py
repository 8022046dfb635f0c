"""The effect of the rules on real connections in real namespaces, with test listeners instead of Envoy."""

import asyncio
import ctypes
import socket
import struct
import subprocess
import threading
from contextlib import contextmanager
from ipaddress import ip_network

import pytest

import host
from weft.netns import iptables
from weft.netns import namespace as netns
from weft.netns.interception import Interception
from weft.netns.namespace import NetworkError

pytestmark = pytest.mark.root

APP, PROXY = 4242, 1337
FAMILIES = [socket.AF_INET, socket.AF_INET6]
SOMEWHERE = {socket.AF_INET: "240.240.7.7", socket.AF_INET6: "2001:db8::7"}


def original_destination(connection):
    if connection.family == socket.AF_INET6:
        raw = connection.getsockopt(socket.IPPROTO_IPV6, 80, 28)
        return socket.inet_ntop(socket.AF_INET6, raw[8:24]), struct.unpack_from("!H", raw, 2)[0]
    raw = connection.getsockopt(socket.SOL_IP, 80, 16)
    return socket.inet_ntop(socket.AF_INET, raw[4:8]), struct.unpack_from("!H", raw, 2)[0]


@contextmanager
def listening(pod, family, *ports):
    """Listeners that answer each call with their port and the original destination."""

    def serve(server, port):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    meant = original_destination(connection)
                except OSError:
                    meant = connection.getsockname()[:2]
                connection.sendall(f"{port} {meant[0]} {meant[1]}".encode())

    servers = []
    for port in ports:
        server = netns.socket_in(pod.namespace, family)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setblocking(True)
        server.bind(("", port))
        server.listen()
        thread = threading.Thread(target=serve, args=(server, port), daemon=True)
        thread.start()
        servers.append((server, thread))
    yield
    for server, thread in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def call(pod, uid, address, port, source=""):
    def connect():
        # iptables matches the user that opened the socket; setfsuid changes the user of one thread only.
        libc = ctypes.CDLL(None)
        libc.setfsgid(uid)
        libc.setfsuid(uid)
        with socket.socket(socket.AF_INET6 if ":" in str(address) else socket.AF_INET) as connection:
            connection.settimeout(5)
            if source:
                connection.bind((source, 0))
            connection.connect((str(address), port))
            return connection.recv(1000).decode()

    return netns.run_in(pod.namespace, connect)


def own_address(pod, family):
    return pod.ipv4 if family == socket.AF_INET else pod.ipv6


def tables(namespace):
    saved = []
    for program in ("iptables-save", "ip6tables-save"):
        text = netns.run_in(namespace, lambda p=program: subprocess.run([p], capture_output=True, text=True).stdout)
        saved.append([line for line in text.splitlines() if not line.startswith(("#", ":"))])
    return saved


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_app_calls_lands_at_15001_and_its_destination_is_kept(make_pods, family):
    _, (pod,) = make_pods(1)
    iptables.apply(pod.namespace, Interception())
    with listening(pod, family, 15001):
        assert call(pod, APP, SOMEWHERE[family], 80) == f"15001 {SOMEWHERE[family]} 80"
        assert call(pod, APP, SOMEWHERE[family], 15006) == f"15001 {SOMEWHERE[family]} 15006"


@pytest.mark.parametrize("family", FAMILIES)
def test_inbound_connections_reach_15006_and_keep_their_destination(make_pods, family):
    _, (caller, pod) = make_pods(2)
    iptables.apply(pod.namespace, Interception())
    address = own_address(pod, family)
    with listening(pod, family, 15006, 15020, 15021, 15090, 15008):
        assert call(caller, APP, address, 8080) == f"15006 {address} 8080"
        for port in (15008, 15020, 15021, 15090):
            assert call(caller, APP, address, port) == f"{port} {address} {port}"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_proxys_own_calls_leave_the_pod(make_pods, family):
    _, (pod, other) = make_pods(2)
    iptables.apply(pod.namespace, Interception())
    address = own_address(other, family)
    with listening(pod, family, 15001), listening(other, family, 8080):
        assert call(pod, PROXY, address, 8080) == f"8080 {address} 8080"
        assert call(pod, APP, address, 8080) == f"15001 {address} 8080"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_that_calls_itself_through_its_service_passes_both_sides(make_pods, family):
    _, (pod,) = make_pods(1)
    iptables.apply(pod.namespace, Interception())
    address = own_address(pod, family)
    with listening(pod, family, 15001, 15006, 8080):
        # The service's virtual address is outbound; the endpoint that the proxy picks is the pod itself: inbound.
        assert call(pod, APP, SOMEWHERE[family], 80).startswith("15001 ")
        assert call(pod, PROXY, address, 8080) == f"15006 {address} 8080"
        # Connections of the inbound side come from 127.0.0.6 or ::6, and must reach the app.
        source = "127.0.0.6" if family == socket.AF_INET else "::6"
        assert call(pod, PROXY, address, 8080, source=source) == f"8080 {address} 8080"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_app_on_loopback_is_left_alone(make_pods, family):
    _, (pod,) = make_pods(1)
    iptables.apply(pod.namespace, Interception())
    with listening(pod, family, 15001, 15006, 8080):
        loopback = "127.0.0.1" if family == socket.AF_INET else "::1"
        for uid in (APP, PROXY):
            assert call(pod, uid, loopback, 8080) == f"8080 {loopback} 8080"
        address = own_address(pod, family)
        assert call(pod, APP, address, 8080) == f"8080 {address} 8080"


@pytest.mark.parametrize("family", FAMILIES)
def test_excluded_ports_and_ranges_go_straight(make_pods, family):
    _, (pod, other, third) = make_pods(3)
    interception = Interception(
        outbound_ports_excluded=(9090,),
        outbound_ranges_excluded=(ip_network(str(third.ipv4)), ip_network(str(third.ipv6))),
        inbound_ports_excluded=(7070,),
    )
    iptables.apply(pod.namespace, interception)
    there, elsewhere = own_address(other, family), own_address(third, family)
    with listening(pod, family, 15001, 15006, 7070), listening(other, family, 9090), listening(third, family, 8080):
        assert call(pod, APP, there, 9090).startswith("9090 ")
        assert call(pod, APP, there, 8080).startswith("15001 ")
        assert call(pod, APP, elsewhere, 8080).startswith("8080 ")
        assert call(other, APP, own_address(pod, family), 7070).startswith("7070 ")
        assert call(other, APP, own_address(pod, family), 7071).startswith("15006 ")


@pytest.mark.parametrize("family", FAMILIES)
def test_only_included_ports_and_ranges_are_intercepted(make_pods, family):
    _, (pod, other, third) = make_pods(3)
    interception = Interception(
        outbound_ranges=(ip_network(str(third.ipv4)), ip_network(str(third.ipv6))),
        outbound_ports=(9090,),
        inbound_ports=(7070,),
    )
    iptables.apply(pod.namespace, interception)
    there, elsewhere = own_address(other, family), own_address(third, family)
    with listening(pod, family, 15001, 15006, 7071), listening(other, family, 8080):
        assert call(pod, APP, there, 8080).startswith("8080 ")
        assert call(pod, APP, there, 9090).startswith("15001 ")
        assert call(pod, APP, elsewhere, 8080).startswith("15001 ")
        assert call(other, APP, own_address(pod, family), 7070).startswith("15006 ")
        assert call(other, APP, own_address(pod, family), 7071).startswith("7071 ")


async def test_datagrams_such_as_dns_are_not_touched(make_pods):
    _, (pod, other) = make_pods(2)
    iptables.apply(pod.namespace, Interception())
    loop = asyncio.get_running_loop()
    with (
        netns.socket_in(other.namespace, socket.AF_INET, socket.SOCK_DGRAM) as server,
        netns.socket_in(pod.namespace, socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("", 53))
        await loop.sock_sendto(client, b"question", (str(other.ipv4), 53))
        data, sender = await asyncio.wait_for(loop.sock_recvfrom(server, 100), 30)
        assert (data, sender[0]) == (b"question", str(pod.ipv4))


def test_applying_twice_gives_the_same_rules_and_a_change_replaces_them(make_namespace):
    namespace, other = make_namespace(), make_namespace()
    iptables.apply(namespace, Interception())
    once = tables(namespace)
    iptables.apply(namespace, Interception())
    assert tables(namespace) == once
    changed = Interception(outbound_ports_excluded=(9090,), virtual_interfaces=("tap0",), interfaces_excluded=("eth7",))
    iptables.apply(namespace, changed)
    iptables.apply(other, changed)
    assert tables(namespace) == tables(other) != once


def test_removing_leaves_what_is_not_ours_and_can_be_repeated(make_namespace):
    namespace = make_namespace()
    foreign = ["iptables", "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "RETURN"]
    netns.run_in(namespace, lambda: subprocess.run(foreign, check=True))
    before = tables(namespace)
    iptables.apply(namespace, Interception(interfaces_excluded=("eth7",)))
    iptables.remove(namespace)
    iptables.remove(namespace)
    assert tables(namespace)[0] == before[0]
    assert [rule for rule in tables(namespace)[1] if "ISTIO" in rule] == []


def test_what_is_applied_once_stays_until_it_is_removed(make_namespace):
    namespace = make_namespace()
    iptables.apply_once(namespace, Interception())
    before = tables(namespace)
    iptables.apply_once(namespace, Interception())
    with pytest.raises(NetworkError, match="a different redirect is installed already"):
        iptables.apply_once(namespace, Interception(inbound_ports=()))
    assert tables(namespace) == before
    iptables.remove(namespace)
    assert not [rule for rules in tables(namespace) for rule in rules if "ISTIO" in rule]
    iptables.apply_once(namespace, Interception(inbound_ports=()))


def test_what_was_applied_once_is_the_same_wish_to_a_version_that_writes_other_rules(make_namespace, monkeypatch):
    """A proxy that restarts in a running pod requests its redirect again, possibly from a newer agent."""
    namespace = make_namespace()
    iptables.apply_once(namespace, Interception())
    before = tables(namespace)
    written = Interception.rules
    later = "-A ISTIO_OUTPUT -d 192.0.2.1 -j RETURN\nCOMMIT"
    monkeypatch.setattr(Interception, "rules", lambda self, family: written(self, family).replace("COMMIT", later))
    iptables.apply_once(namespace, Interception())
    with pytest.raises(NetworkError, match="a different redirect is installed already"):
        iptables.apply_once(namespace, Interception(outbound_ports_excluded=(80,)))
    assert tables(namespace) == before


def test_the_host_is_untouched(make_namespace):
    before = host.network()
    namespace = make_namespace()
    iptables.apply(namespace, Interception())
    assert host.network() == before
    iptables.remove(namespace)
    assert host.network() == before


def test_a_missing_program_names_the_package(make_namespace, monkeypatch):
    namespace = make_namespace()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NetworkError) as raised:
        iptables.apply(namespace, Interception())
    assert raised.value.problem.hint == "apt-get install iptables"


def test_a_rule_that_the_kernel_rejects_is_shown_and_no_rule_is_applied(make_namespace):
    namespace = make_namespace()
    with pytest.raises(NetworkError, match="rejected the interception rules"):
        iptables.apply(namespace, Interception(interfaces_excluded=("a-name-far-too-long-for-the-kernel",)))
    assert not any("ISTIO" in rule for table in tables(namespace) for rule in table)
