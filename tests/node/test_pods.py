"""Pods are published, published again and removed, and agents are replaced. Kubelet's side is in test_csi.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest

from eventually import eventually
from node.kubelet_rig import KubernetesNode, pod
from weft.ca.signer import CaUnavailable
from weft.model.proxy import CERTIFICATE, REDIRECT_SOCKET, ROOTS, SDS_SOCKET, XDS_SOCKET
from weft.node.agent import Agent
from weft.node.door import DoorError, bind, unbind
from weft.node.keepsakes import Keepsakes
from weft.node.pods import KubeletPod, NodePods, VolumeRefused

pytestmark = pytest.mark.root


class Sockets:
    """A SocketServer that can be made to fail."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.open: dict[str, tuple] = {}
        self.added: list[KubeletPod] = []

    async def add(self, pod, doorway):
        if self.error is not None:
            raise self.error
        self.added.append(pod)
        listening, made = bind(doorway)
        self.open[pod.uid] = listening, doorway, made

    async def remove(self, uid):
        if uid in self.open:
            listening, doorway, made = self.open.pop(uid)
            listening.close()
            unbind(doorway, made, gone=True)


class Line:
    """The connection to the CA, which can be cut."""

    def __init__(self, service) -> None:
        self.service, self.cut = service, False

    async def create(self, token, csr, lifetime=None):
        if self.cut:
            raise CaUnavailable("the line is cut")
        return await self.service.create(token, csr, lifetime)

    def bundles(self):
        return self.service.bundles()


class Node:
    def __init__(self, directory: Path, state: Path) -> None:
        self.around = KubernetesNode(directory, state)
        self.line = Line(self.around.service)
        self.kubelet = self.around.kubelet
        self.relay, self.redirects = Sockets(), Sockets()
        self.agent: Agent | None = None
        self.lack = ""

    async def begin(self, *, bundle=True, keeps=True) -> NodePods:
        """Start an agent. If there was one before, it was killed."""
        roots = self.around.authority.bundle() if bundle else ()
        if self.agent is not None:
            await self.end()
        self.agent = Agent(
            self.line,
            self.around.directory / "private",
            bundle=roots,
            certified=lambda *each: self.pods.certified(*each),
        )
        self.agent.start()
        servers = {XDS_SOCKET: self.relay, REDIRECT_SOCKET: self.redirects}
        keepsakes = Keepsakes(self.around.state) if keeps else None
        self.pods = NodePods(self.agent, servers, keepsakes, trust_domain="cluster.local", lack=lambda _: self.lack)
        await self.pods.recover(self.kubelet.kubelet.volumes(self.kubelet.driver))
        return self.pods

    async def end(self) -> None:
        await self.agent.close()
        for each in (self.relay, self.redirects):
            for listening, doorway, made in each.open.values():
                listening.close()
                unbind(doorway, made, gone=False)
            each.open.clear()

    async def publish(self, of, token=None) -> Path:
        self.kubelet.write_down(of)
        volume = self.kubelet.volume(of)
        await self.pods.publish(volume, of, self.around.token(of) if token is None else token)
        return volume.path

    def serial(self, of) -> str:
        return self.agent.status(of.uid).serial


@pytest.fixture
async def node():
    directory, state = (
        Path(tempfile.mkdtemp(prefix="weft-p-")),
        Path(tempfile.mkdtemp(prefix="weft-p-", dir="/dev/shm")),
    )
    made = Node(directory, state)
    await made.begin()
    yield made
    await made.end()
    made.around.authority.close()
    for each in (directory, state):
        shutil.rmtree(each)


def names(volume: Path) -> set[str]:
    return {each.name for each in volume.iterdir()}


async def test_all_sockets_are_in_the_one_volume_and_go_with_it(node):
    web = pod()
    volume = await node.publish(web)
    assert names(volume) == {SDS_SOCKET, XDS_SOCKET, REDIRECT_SOCKET}
    assert node.relay.added == [web]
    await eventually(lambda: node.serial(web))
    await node.pods.unpublish(node.kubelet.volume(web))
    assert not volume.exists() and list(node.around.state.iterdir()) == [] and len(node.pods) == 0


async def test_publishing_a_pod_again_replaces_only_its_token(node):
    web = pod()
    volume = await node.publish(web)
    await eventually(lambda: node.serial(web))
    serial, before = node.serial(web), {name: (volume / name).stat() for name in names(volume)}
    await node.publish(web)
    assert node.serial(web) == serial and node.relay.added == [web]
    assert all(os.path.samestat((volume / name).stat(), found) for name, found in before.items())


@pytest.fixture
def long_pauses(monkeypatch):
    """Long retry delays, so that anything within ten seconds was not a retry."""
    monkeypatch.setattr("weft.node.identities._FIRST_DELAY", 30.0)


async def test_a_fresh_token_is_used_at_once_where_the_old_one_failed(node, long_pauses):
    web = pod()
    await node.publish(web, token="not.a.token")
    await eventually(lambda: node.agent.status(web.uid).error)
    await node.publish(web)
    await eventually(lambda: node.serial(web), limit=10)


async def test_a_first_volume_that_cannot_be_made_whole_leaves_nothing(node):
    web = pod()
    for each, words in ((node.relay, "pod shop/web-0: no room"), (node.redirects, "no room")):
        each.error = DoorError("no room")
        with pytest.raises(VolumeRefused, match=words):
            await node.publish(web)
        assert not node.kubelet.volume(web).path.exists() and node.agent.statuses() == [] and len(node.pods) == 0
        each.error = None
    await node.publish(web)


@pytest.mark.parametrize("error", [DoorError("no room"), RuntimeError("not thought of")])
async def test_a_socket_that_fails_for_a_running_pod_is_no_error_and_is_retried(node, error, caplog):
    web = pod()
    volume = await node.publish(web)
    await eventually(lambda: node.serial(web))
    node.relay.error = error
    await node.begin()
    assert names(volume) == {SDS_SOCKET, REDIRECT_SOCKET} and f"cannot open the socket `{XDS_SOCKET}`" in caplog.text
    await node.publish(web)
    assert names(volume) == {SDS_SOCKET, REDIRECT_SOCKET}
    node.relay.error = None
    await node.publish(web)
    assert names(volume) == {SDS_SOCKET, XDS_SOCKET, REDIRECT_SOCKET}


async def test_a_pod_without_config_gets_no_volume_and_an_event_with_the_reason(node, monkeypatch):
    web, node.lack = pod(), "the control plane is away"
    monkeypatch.setattr("weft.node.pods.PATIENCE", 0.1)
    with pytest.raises(VolumeRefused, match=r"^pod shop/web-0 cannot start yet: the control plane is away$"):
        await node.publish(web)
    assert not node.kubelet.volume(web).path.exists() and node.agent.statuses() == [] and len(node.pods) == 0
    node.lack = ""
    await node.publish(web)
    node.lack = "the control plane is away"
    await node.publish(web)  # a running pod keeps what it has


async def test_a_pod_gets_its_volume_as_soon_as_it_need_not_wait(node):
    web, node.lack = pod(), "the control plane is away"
    publishing = asyncio.create_task(node.publish(web))
    await eventually(lambda: node.relay.added)
    assert not publishing.done()
    node.lack = ""
    await publishing


async def test_the_next_agent_has_the_same_certificate_and_needs_no_ca_for_it(node):
    web = pod()
    await node.publish(web)
    await eventually(lambda: node.serial(web))
    serial, renewal = node.serial(web), node.agent.status(web.uid).renewal
    node.line.cut = True
    await node.begin()
    await eventually(lambda: node.agent.status(web.uid).serial)
    assert node.serial(web) == serial and not node.agent.status(web.uid).error
    # Its renewal time is unchanged, up to the jitter.
    assert abs(node.agent.status(web.uid).renewal - renewal) < 0.05 * 86_400


async def test_a_certificate_of_a_root_that_is_trusted_no_more_is_not_used_again(node):
    web = pod()
    await node.publish(web)
    await eventually(lambda: node.serial(web))
    serial = node.serial(web)
    from weft.ca.authority import Authority
    from weft.ca.service import CertificateService

    node.around.authority = Authority.in_memory("cluster.local")
    node.line.service = CertificateService(node.around.authority, node.around.issuer.checker())
    await node.begin()
    await eventually(lambda: node.serial(web) and node.serial(web) != serial)


async def test_without_kept_state_the_roots_are_served_at_once_and_the_rest_after_kubelets_next_call(node):
    web = pod()
    volume = await node.publish(web)
    await eventually(lambda: node.serial(web))
    await node.begin(keeps=False)
    assert len(node.pods) == 0 and names(volume) == {SDS_SOCKET}
    secrets = node.agent._secrets
    assert secrets.has(web.uid, ROOTS) and not secrets.has(web.uid, CERTIFICATE)
    socket = (volume / SDS_SOCKET).stat()
    await node.publish(web)
    await eventually(lambda: node.serial(web))
    assert names(volume) == {SDS_SOCKET, XDS_SOCKET, REDIRECT_SOCKET}
    assert os.path.samestat((volume / SDS_SOCKET).stat(), socket)  # its proxy stays connected


async def test_an_unknown_running_pod_without_a_token_reports_what_it_waits_for(node, long_pauses):
    web = pod()
    await node.publish(web)
    await node.begin(keeps=False)
    await node.publish(web, token="")
    await eventually(lambda: "kubelet has sent no token" in node.agent.status(web.uid).error)
    await node.publish(web)
    await eventually(lambda: node.serial(web), limit=10)


async def test_a_kept_certificate_of_another_volume_is_not_used(node):
    web = pod()
    await node.publish(web)
    await eventually(lambda: node.serial(web))
    file = node.around.state / f"{web.uid}.json"
    said = msgspec.json.decode(file.read_bytes())
    file.write_bytes(msgspec.json.encode({**said, "volume_id": "csi-other"}))
    await node.begin()
    assert len(node.pods) == 0 and not file.exists()


async def test_a_volume_that_kubelet_has_only_noted_is_not_touched(node):
    web = pod()
    node.kubelet.write_down(web)
    await node.begin()
    assert not node.kubelet.volume(web).path.exists()
    await node.publish(web)


async def test_a_volume_that_is_not_as_it_should_be_keeps_no_other_from_being_served(node, caplog):
    web, odd = pod("web-0"), pod("odd-0")
    for each in (web, odd):
        await node.publish(each)
    (node.kubelet.volume(odd).path / "other").touch()
    await node.begin(keeps=False)
    assert "cannot open the socket in" in caplog.text and "it contains other" in caplog.text
    assert node.agent._secrets.workloads() == (web.uid,)
    with pytest.raises(VolumeRefused, match="cannot be removed: Directory not empty"):
        await node.pods.unpublish(node.kubelet.volume(odd))


async def test_two_pods_with_the_same_name_are_distinct(node):
    old, new = pod(), pod()
    for each in (old, new):
        await node.publish(each)
    await eventually(lambda: node.serial(old) and node.serial(new))
    await node.pods.unpublish(node.kubelet.volume(old))
    assert node.serial(new) and node.kubelet.volume(new).path.exists()


async def test_a_second_volume_of_a_pod_is_refused_and_the_first_stays(node):
    web = pod()
    volume = await node.publish(web)
    second = node.kubelet.volume(web, "another")
    with pytest.raises(VolumeRefused, match="it may have only one"):
        await node.pods.publish(second, web, node.around.token(web))
    await node.pods.unpublish(second)
    assert SDS_SOCKET in names(volume) and len(node.pods) == 1


async def test_calls_for_one_pod_wait_for_each_other(node):
    web = pod()
    calls = [node.publish(web), node.publish(web), node.pods.unpublish(node.kubelet.volume(web)), node.publish(web)]
    await asyncio.gather(*calls)
    assert len(node.pods) == 1 and node.kubelet.volume(web).path.exists()
    await node.pods.unpublish(node.kubelet.volume(web))
    assert node.pods._turns == {}


async def test_a_publish_that_kubelet_gives_up_leaves_nothing_half_made(node):
    web = pod()
    waiting = asyncio.Event()

    async def endless(pod, doorway):
        waiting.set()
        await asyncio.Event().wait()

    node.relay.add = endless
    asking = asyncio.create_task(node.publish(web))
    await waiting.wait()
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    assert len(node.pods) == 0 and not node.kubelet.volume(web).path.exists()
