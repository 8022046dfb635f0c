import asyncio
import gc
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from weft.netns import namespace as netns
from weft.netns.namespace import NetworkError, NetworkNamespace

pytestmark = pytest.mark.root


def own_network():
    return tuple(Path(f"/proc/{who}/ns/net").readlink() for who in ("self", "thread-self"))


def test_a_made_namespace_is_listed_by_ip_netns_and_by_us(make_namespace):
    namespace = make_namespace()
    assert namespace.name in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert namespace in netns.namespaces()
    assert netns.exists(namespace)


def test_a_deleted_namespace_is_gone_and_deleting_twice_is_fine(make_namespace):
    namespace = make_namespace()
    netns.delete(namespace)
    netns.delete(namespace)
    assert namespace not in netns.namespaces()
    assert str(namespace.path) not in Path("/proc/self/mountinfo").read_text()


def test_the_last_namespace_takes_the_mounted_directory_with_it(make_namespace):
    netns.delete(make_namespace())
    # Other processes may use namespaces on this machine, and then need the directory.
    if not netns.namespaces():
        assert " /run/netns " not in Path("/proc/self/mountinfo").read_text()


def test_a_name_is_taken_only_once(make_namespace):
    namespace = make_namespace()
    with pytest.raises(NetworkError, match="exists already"):
        netns.make(namespace.name)
    assert netns.exists(namespace)


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_refuses_names_that_are_paths(name):
    with pytest.raises(NetworkError, match="cannot be a namespace's name"):
        netns.make(name)


def test_entering_changes_only_the_thread_that_enters(make_namespace):
    before = own_network()
    inside = netns.run_in(make_namespace(), own_network)
    assert own_network() == before
    assert inside[0] == before[0]
    assert inside[1] != before[1]


def test_entering_a_missing_namespace_is_an_error():
    with pytest.raises(NetworkError, match=r"namespace weft-none.*cannot be entered"):
        netns.socket_in(NetworkNamespace("weft-none"))


def test_entering_the_current_namespace_needs_no_privilege():
    """A pod's init container may change its own network, but may not enter another."""
    script = (
        "from weft.netns.namespace import *; print(run_in(NetworkNamespace('/proc/self/ns/net'), lambda: 'inside'))"
    )
    command = ["setpriv", "--bounding-set=-all,+net_admin", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "inside\n", done.stderr


def test_what_fails_inside_fails_outside(make_namespace):
    with pytest.raises(ZeroDivisionError):
        netns.run_in(make_namespace(), lambda: 1 // 0)


def test_no_thread_is_left_in_the_namespace(make_namespace):
    namespace = make_namespace()
    before = threading.active_count()
    netns.socket_in(namespace).close()
    assert threading.active_count() == before


async def test_a_socket_made_inside_talks_inside_from_the_event_loop(make_namespace):
    namespace = make_namespace()
    subprocess.run(["ip", "-n", namespace.name, "link", "set", "lo", "up"], check=True)
    with netns.socket_in(namespace) as server, netns.socket_in(namespace) as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, server.getsockname())
        accepted, _ = await loop.sock_accept(server)
        with accepted, socket.socket() as outside:
            await loop.sock_sendall(client, b"inside")
            assert await loop.sock_recv(accepted, 100) == b"inside"
            with pytest.raises(ConnectionRefusedError):
                outside.connect(server.getsockname())


def test_finds_the_processes_that_live_inside(make_namespace):
    namespace, other = make_namespace(), make_namespace()
    command = ["nsenter", f"--net={namespace.path}", "sh", "-c", "echo in; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            assert netns.processes_in(namespace) == [process.pid]
            assert netns.processes_in(other) == []
        finally:
            process.kill()
    assert netns.processes_in(namespace) == []
    assert netns.processes_in(NetworkNamespace("weft-none")) == []


def test_a_nameless_namespace_leaves_nothing():
    before, times = set(netns.namespaces()), 50
    assert all(netns.run_in_new(socket.if_nameindex) == [(1, "lo")] for _ in range(times))
    assert len(set(netns.namespaces()) - before) < times  # other tests may create some meanwhile, but not so many


def test_many_at_once_neither_collide_nor_leave_anything(make_namespace):
    keeper = make_namespace("keeper")

    def come_and_go(number):
        for turn in range(5):
            namespace = netns.make(f"{keeper.name}-{number}-{turn}")
            netns.socket_in(namespace).close()
            netns.delete(namespace)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, range(8)))
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert mounted.count("/run/netns") == 1
    assert not [path for path in mounted if path.startswith(f"{keeper.path}-")]


def test_no_garbage_of_others_is_collected_inside():
    """A finalizer could start threads, which would stay in the namespace."""
    collected_in = []

    class Garbage:
        def __del__(self):
            collected_in.append(Path("/proc/thread-self/ns/net").stat().st_ino)

    def much_work():
        return [[] for _ in range(100_000)]

    def leave_some():
        for _ in range(10):
            left = [Garbage()]
            left.append(left)

    gc.collect()
    leave_some()
    netns.run_in_new(much_work)
    assert gc.isenabled()
    gc.collect()
    here = Path("/proc/thread-self/ns/net").stat().st_ino
    assert collected_in == [here] * 10


def test_low_ports_are_open_in_one_namespace_and_stay_closed_outside(make_namespace):
    read = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text
    outside, namespace = read(), make_namespace()
    netns.open_low_ports(namespace)
    assert netns.run_in(namespace, read).strip() == "0"
    assert read() == outside
    with pytest.raises(NetworkError):
        netns.open_low_ports(NetworkNamespace("weft-not-there"))


def test_a_process_knows_its_own_namespace_and_whether_it_is_the_kernels_first(monkeypatch):
    assert netns.own().path == netns.OWN
    monkeypatch.setattr(netns, "_FIRST", netns.OWN.stat().st_ino)
    assert netns.is_kernels_first()
    monkeypatch.setattr(netns, "_FIRST", 0)
    assert not netns.is_kernels_first()
