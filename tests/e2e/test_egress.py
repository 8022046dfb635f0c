"""`weft up --egress`: pods reach hosts outside the mesh, but nothing that the machine serves itself, and the machine's
network stays as it was.

A network namespace stands for the machine, another for the outside world, so no test reaches a real network."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from e2e.mesh import unique_name
from e2e.objects import istio, text
from eventually import eventually
from weft.local.run_directory import meshes
from weft.netns import namespace
from weft.netns.namespace import NetworkNamespace, run_in, socket_in

pytestmark = pytest.mark.root

# Addresses for documentation, and a unique local IPv6 network.
MACHINE, OUTSIDE, OUTSIDE_6, MACHINE_6 = "203.0.113.1", "203.0.113.2", "fd00:77::2", "fd00:77::1"
PORT = 8099
# Each call reads first, so that it also succeeds with a server whose protocol begins with the server.
CALLS = """
import json, socket, sys
for target in sys.argv[1:]:
    host, _, port = target.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            received = connection.recv(100).decode()
    except OSError as error:
        received = ""
    print(json.dumps([target, received]))
"""


def calling(hosts: list[str], resolution: str, *endpoints: str) -> dict:
    spec = {
        "hosts": hosts,
        "ports": [{"number": PORT, "name": "tcp", "protocol": "TCP"}],
        "location": "MESH_EXTERNAL",
        "resolution": resolution,
        "endpoints": [{"address": each} for each in endpoints],
    }
    return istio("ServiceEntry", hosts[0].partition(".")[0], spec)


WORKLOAD = {
    "apiVersion": "weft.dev/v1alpha1",
    "kind": "Workload",
    "metadata": {"name": "client", "namespace": "shop"},
    "spec": {"command": ["sleep", "infinity"]},
}


class Machine:
    def __init__(self, directory: Path) -> None:
        suffix = os.urandom(3).hex()
        self.directory, self.name = directory, unique_name("egress")
        self.inside, self.outside = (namespace.make(f"wt-{word}-{suffix}") for word in ("machine", "world"))
        self._link()
        self._servers = [
            *(self._serve(self.outside, address, "the world") for address in ("0.0.0.0", "::")),
            *(self._serve(self.inside, address, "the machine") for address in ("0.0.0.0", "::")),
        ]
        (directory / "mesh.yaml").write_text(
            text(
                WORKLOAD,
                calling(["api.world.test"], "DNS", OUTSIDE),
                calling(["own.world.test"], "STATIC", MACHINE),
                calling(["named.world.test"], "DNS"),
            )
        )

    def _link(self) -> None:
        def settle() -> None:
            # Without duplicate address detection, the kernel does not change addresses later.
            Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")

        def cable() -> None:
            handle = os.open(self.outside.path, os.O_RDONLY)
            try:
                with IPRoute() as netlink:
                    netlink.link("add", ifname="wan", kind="veth", peer={"ifname": "wan", "net_ns_fd": handle})
            finally:
                os.close(handle)

        def up(*addresses: tuple[str, int]):
            def run() -> None:
                with IPRoute() as netlink:
                    netlink.link("set", index=1, state="up")
                    index = socket.if_nametoindex("wan")
                    netlink.link("set", index=index, state="up")
                    for address, length in addresses:
                        flags = {"flags": 2} if ":" in address else {}
                        netlink.addr("add", index=index, address=address, prefixlen=length, **flags)

            return run

        run_in(self.inside, settle)
        run_in(self.outside, settle)
        run_in(self.inside, cable)
        run_in(self.inside, up((MACHINE, 24), (MACHINE_6, 64)))
        run_in(self.outside, up((OUTSIDE, 24), (OUTSIDE_6, 64)))

    def _serve(self, where: NetworkNamespace, address: str, greeting: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket_in(where, family)
        server.setblocking(True)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind((address, PORT))
        server.listen(16)

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(greeting.encode())

        threading.Thread(target=answer, daemon=True).start()
        return server

    def weft(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["nsenter", f"--net={self.inside.path}", sys.executable, "-m", "weft.cli", *arguments]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def up(self, *arguments: str) -> str:
        done = self.weft("up", str(self.directory), "--name", self.name, "--detach", *arguments)
        return done.stdout + done.stderr

    def call(self, *hosts: str) -> dict[str, str]:
        targets = [f"{host}:{PORT}" for host in hosts]
        done = self.weft("exec", "--mesh", self.name, "client", "--", "python3", "-c", CALLS, *targets)
        answers = dict(map(json.loads, done.stdout.splitlines()))
        return {host: answers[f"{host}:{PORT}"] for host in hosts}

    def network(self) -> str:
        """Return everything of the machine's network that a program could have changed."""

        def read() -> str:
            commands = ("ip -d link", "ip address", "ip rule", "ip -6 rule", "ip route show table all")
            commands += ("ip -6 route show table all", "iptables-save", "ip6tables-save")
            said = [
                subprocess.run(each.split(), capture_output=True, text=True, check=True).stdout for each in commands
            ]
            kept = (line for line in "\n".join(said).splitlines() if not line.startswith("#"))
            settings = [Path(f"/proc/sys/net/{name}").read_text() for name in SETTINGS]
            return "\n".join((*kept, *settings))

        return run_in(self.inside, read)

    def close(self) -> None:
        self.weft("down", self.name, check=False)
        for server in self._servers:
            with closing(server):
                server.shutdown(socket.SHUT_RDWR)
        for each in (self.inside, self.outside):
            namespace.delete(each)


SETTINGS = ("ipv4/ip_forward", "ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding", "ipv4/conf/all/route_localnet")


@pytest.fixture
def machine() -> Iterator[Machine]:
    directory = Path(tempfile.mkdtemp(prefix="weft-egress-", dir="/tmp"))
    made = Machine(directory)
    yield made
    made.close()
    shutil.rmtree(directory)


def test_pods_reach_the_world_only_with_egress_and_the_machine_never(machine):
    before = machine.network()
    shown = machine.up()
    assert "WFT0322" in shown and "weft up --egress" in shown
    assert set(machine.call("api.world.test", OUTSIDE).values()) == {""}
    machine.weft("down", machine.name)

    assert "WFT0322" not in machine.up("--egress")
    assert machine.network() == before
    assert machine.call("api.world.test", OUTSIDE, OUTSIDE_6) == {
        "api.world.test": "the world",
        OUTSIDE: "the world",
        OUTSIDE_6: "the world",
    }
    own = ("own.world.test", MACHINE, MACHINE_6, "169.254.1.1", "10.244.0.1")
    assert machine.call(*own) == dict.fromkeys(own, "")
    machine.weft("down", machine.name)
    assert machine.network() == before


async def test_an_address_that_is_added_to_the_machine_is_refused(machine):
    machine.up("--egress")
    late = "203.0.113.9"

    def add(where: NetworkNamespace) -> None:
        def run() -> None:
            with IPRoute() as netlink:
                netlink.addr("add", index=socket.if_nametoindex("wan"), address=late, prefixlen=24)

        run_in(where, run)

    add(machine.inside)
    await eventually(lambda: machine.call(late)[late] == "")
    assert machine.call(OUTSIDE) == {OUTSIDE: "the world"}


def test_the_sidecar_decides_which_hosts_are_called(machine):
    (machine.directory / "scope.yaml").write_text(
        text(istio("Sidecar", "default", {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}))
    )
    machine.up("--egress")
    assert machine.call("api.world.test", OUTSIDE) == {"api.world.test": "the world", OUTSIDE: ""}


async def test_a_killed_mesh_leaves_nothing_of_its_way_out(machine):
    before = machine.network()
    machine.up("--egress")
    (record,) = [each for each in meshes() if each.name == machine.name]
    os.kill(record.pid, 9)
    # The kernel kills the Envoy in the machine's network; the test's own commands are not there any more.
    await eventually(lambda: namespace.processes_in(machine.inside) == [])
    machine.weft("down", machine.name)
    assert machine.network() == before
    assert not [each for each in namespace.namespaces() if machine.name in each.name]
