"""Pods without privileges in real namespaces, whose traffic the agent redirects, and callers that the agent rejects."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path

import pytest

from node.redirect_rig import ARGUMENTS, ask, rules
from weft.model.proxy import PROXY_GID, PROXY_UID, REDIRECT_SOCKET
from weft.netns import namespace as netns
from weft.node import redirect
from weft.node.door import DoorError
from weft.node.pods import KubeletPod, doorway_in
from weft.node.redirect import Redirects

pytestmark = pytest.mark.root

POD = KubeletPod("shop", "web-0", "0f6c6d6e-5f0c-4c6b-8c88-4f1d7a3f7f0e", "web")


@pytest.fixture
def network():
    made = netns.make(f"weft-redirect-{uuid.uuid4().hex[:8]}")
    subprocess.run(["ip", "-n", made.name, "link", "set", "lo", "up"], check=True)
    yield made
    netns.delete(made)


@pytest.fixture
def volume():
    directory = Path(tempfile.mkdtemp(prefix="weft-redirect-"))
    directory.chmod(0o755)
    (directory / "seen").mkdir()
    yield directory / "mount"
    shutil.rmtree(directory)


@pytest.fixture
async def redirects(volume):
    made = Redirects()
    await made.add(POD, doorway_in(volume, REDIRECT_SOCKET))
    yield made
    await made.close()


def is_redirected(network) -> bool:
    """Return whether a call of the app to any address reaches the proxy's port."""

    def call() -> bool:
        with socket.create_server(("127.0.0.1", 15001)) as proxy:
            proxy.settimeout(30)
            with socket.socket() as app:
                app.settimeout(30)
                with contextlib.suppress(OSError):
                    app.connect(("127.0.0.9", 80))
                    proxy.accept()[0].close()
                    return True
        return False

    return netns.run_in(network, call)


async def test_a_pod_without_any_privilege_gets_its_redirect_and_no_other_network_changes(redirects, network, volume):
    other = rules_of_the_machine()
    assert not is_redirected(network)
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 0, said
    assert "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001" in rules(network)
    assert "--dport 15021 -j RETURN" in rules(network)
    assert rules_of_the_machine() == other
    assert (redirects.done, redirects.failed) == (1, 0)
    # The pod's proxy may restart and request it again.
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 0, said
    assert rules(network).count("-j ISTIO_OUTPUT") == 1


@pytest.mark.parametrize("agent", ["the same", "the next"])
async def test_no_process_in_the_pod_can_change_its_redirect_later(redirects, network, volume, agent):
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 0, said
    before = [line for line in rules(network).splitlines() if line.startswith("-A")]
    if agent == "the next":
        await redirects.close()
        redirects = Redirects()
        await redirects.add(POD, doorway_in(volume, REDIRECT_SOCKET))
    for others in (("-i", "", "-b", ""), (*ARGUMENTS, "-o", "80"), ("-u", "0", "-i", "*", "-b", "*")):
        code, said = await ask(network, volume, *others)
        assert code == 1 and "a different redirect is installed already" in said
    assert [line for line in rules(network).splitlines() if line.startswith("-A")] == before
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 0, said
    await redirects.close()


async def test_the_rules_redirect_the_traffic_of_the_pod(redirects, network, volume):
    code, said = await ask(network, volume, *ARGUMENTS[:-2], "-i", "127.0.0.9/32,10.0.0.0/8")
    assert code == 0, said
    assert is_redirected(network)


async def test_an_agent_that_ends_lets_go_of_a_network_only_when_the_rules_are_in_place(
    redirects, network, volume, monkeypatch
):
    """The thread uses a file descriptor number, which could belong to another file after it is closed."""
    began, may_end, held = threading.Event(), threading.Event(), []

    def slowly(namespace, wanted):
        began.set()
        may_end.wait(30)
        held.append(Path(namespace.path).exists())

    monkeypatch.setattr(redirect.iptables, "apply_once", slowly)
    asking = asyncio.create_task(ask(network, volume, *ARGUMENTS, timeout="0.5"))
    await asyncio.to_thread(began.wait, 30)
    closing = asyncio.create_task(redirects.close())
    done, _ = await asyncio.wait({closing}, timeout=0.2)
    may_end.set()
    await closing
    assert not done and held == [True]
    code, _ = await asking
    assert code == 1


async def test_another_user_of_the_pod_is_rejected(redirects, network, volume):
    code, said = await ask(network, volume, *ARGUMENTS, uid=65_000, timeout="30")
    assert code == 1 and "only user 1337 may request a redirect, not user 65000" in said
    code, said = await ask(network, volume, *ARGUMENTS, uid=65_000, gid=65_000, timeout="0.5")
    assert code == 1 and "Permission denied" in said
    assert "ISTIO" not in rules(network)


async def test_a_caller_on_the_nodes_own_network_is_rejected(redirects, network, volume):
    """`network` belongs to another pod; it makes sure that /run/netns exists."""
    before = rules_of_the_machine()
    code, said = await ask(netns.NetworkNamespace("/proc/self/ns/net"), volume, *ARGUMENTS)
    assert code == 1 and "on the node's own network" in said
    assert rules_of_the_machine() == before and redirects.failed == 1


async def test_a_process_of_another_pod_is_refused(redirects, network, volume, monkeypatch):
    monkeypatch.setattr(redirect.Path, "read_text", cgroup_of("pod11111111_2222_3333_4444_555555555555.slice"))
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 1 and "another pod, 11111111-2222-3333-4444-555555555555" in said
    monkeypatch.setattr(redirect.Path, "read_text", cgroup_of(f"kubepods/besteffort/pod{POD.uid}/0123"))
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 0, said


async def test_without_so_peerpidfd_the_caller_is_found_by_its_pid(redirects, network, volume, monkeypatch):
    monkeypatch.setattr(redirect, "_SO_PEERPIDFD", 9_999)
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 0, said


async def test_an_agent_without_host_pid_reports_what_it_needs(redirects, network, volume, monkeypatch):
    seen = redirect.visitor_of

    def blind(connection):
        return redirect.msgspec.structs.replace(seen(connection), pid=0)

    monkeypatch.setattr(redirect, "visitor_of", blind)
    code, said = await ask(network, volume, *ARGUMENTS)
    assert code == 1 and "hostPID" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("-p", "http"), "is not a number"), (("-m", "TPROXY"), "TPROXY is not supported"), (("--what", "1"), "--what")],
)
async def test_arguments_that_make_no_sense_change_nothing(redirects, network, volume, arguments, words):
    code, said = await ask(network, volume, *arguments)
    assert code == 1 and words in said
    assert "ISTIO" not in rules(network)


@pytest.mark.parametrize(
    "line", [b"\n", b"[]\n", b'{"arguments": "-p"}\n', b"x" * 100_000, b'{"arguments": ["-c", "eth0\\n-A OUTPUT"]}\n']
)
async def test_an_invalid_request_gets_an_error_and_the_next_one_is_served(
    redirects, network, volume, line, monkeypatch
):
    """The caller is a process of the proxy's user, in the pod."""

    program = f"""
import os, socket, sys
os.setgroups([])
os.setresgid(*[{PROXY_GID}] * 3)
os.setresuid(*[{PROXY_UID}] * 3)
with socket.socket(socket.AF_UNIX) as caller:
    caller.settimeout(20)
    caller.connect(sys.argv[1])
    try:
        caller.sendall(sys.stdin.buffer.read())
    except OSError:
        pass  # it was too much already
    sys.stdout.buffer.write(caller.recv(10_000))
"""
    # Without fork: gRPC would restart its threads in the pod's network, where they would stay.
    command = [sys.executable, "-I", "-c", program, str(volume / REDIRECT_SOCKET)]

    def call() -> bytes:
        return subprocess.run(command, input=line, capture_output=True, timeout=60, check=True).stdout

    said = await asyncio.to_thread(netns.run_in, network, call)
    assert b'"error":' in said
    code, words = await ask(network, volume, *ARGUMENTS)
    assert code == 0, words


async def test_without_an_agent_the_pod_does_not_start_and_with_a_late_one_it_does(network, volume):
    code, said = await ask(network, volume, *ARGUMENTS, timeout="0.3")
    assert code == 1 and "no response from the node's agent" in said and "No such file" in said and "--redirect" in said
    volume.mkdir(mode=0o700)  # its volume exists
    redirects = Redirects()
    asking = asyncio.create_task(ask(network, volume, *ARGUMENTS, timeout="30"))
    await asyncio.sleep(0.5)
    await redirects.add(POD, doorway_in(volume, REDIRECT_SOCKET))
    code, said = await asking
    assert code == 0, said
    await redirects.close()


async def test_the_socket_is_removed_with_its_pod_and_created_again_by_the_next_agent(redirects, volume):
    again = Redirects()
    await again.add(POD, doorway_in(volume, REDIRECT_SOCKET))
    await redirects.close()  # the previous agent must not delete the socket of the next one
    assert (volume / REDIRECT_SOCKET).is_socket()
    await again.remove(POD.uid)
    await again.remove(POD.uid)
    assert not volume.exists()


async def test_a_socket_that_cannot_be_created_is_reported(tmp_path):
    with pytest.raises(DoorError):
        await Redirects().add(POD, doorway_in(tmp_path / "no" / "where", REDIRECT_SOCKET))


def rules_of_the_machine() -> str:
    done = subprocess.run(["iptables-save", "-t", "nat"], capture_output=True, text=True, check=True)
    return "\n".join(line for line in done.stdout.splitlines() if not line.startswith("#"))


def cgroup_of(group: str):
    whole = Path.read_text

    def read_text(self, *arguments, **named):
        return f"0::/{group}\n" if self.name == "cgroup" else whole(self, *arguments, **named)

    return read_text
