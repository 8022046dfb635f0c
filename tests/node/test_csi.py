"""The driver as kubelet calls it, over gRPC on its socket, and the effect on a pod's volume."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat

import grpc
import pytest

from eventually import eventually
from node.kubelet_rig import NODE, kubernetes_node, pod
from weft.model.proxy import IDENTITY_DRIVER, PROXY_GID, SDS_SOCKET
from weft.node import csi_messages as messages
from weft.node.agent import Agent
from weft.node.csi import CsiListenError, Driver
from weft.node.kubelet import Kubelet
from weft.node.pods import NodePods

pytestmark = pytest.mark.root


class Running:
    def __init__(self, node) -> None:
        self.node, self.kubelet = node, node.kubelet
        private = node.directory / "private"
        self.agent = Agent(node.service, private, bundle=node.authority.bundle())
        self.pods = NodePods(self.agent, {}, None, trust_domain="cluster.local")
        self.driver = Driver(IDENTITY_DRIVER, "1.2.3", NODE, node.kubelet.kubelet, self.pods)


@pytest.fixture
async def running():
    async with kubernetes_node() as node:
        made = Running(node)
        made.agent.start()
        await made.driver.start()
        yield made
        await made.driver.close(None)
        await made.agent.close()


@contextlib.contextmanager
def refused(code, words):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        yield
    assert error.value.code() is code and words in error.value.details()


async def test_kubelet_finds_it_and_learns_where_it_is_and_what_it_can_do(running):
    info = await running.kubelet.register()
    endpoint = running.kubelet.kubelet.plugin(IDENTITY_DRIVER) / "csi.sock"
    assert (info.type, info.name, info.endpoint) == ("CSIPlugin", IDENTITY_DRIVER, str(endpoint))
    assert list(info.supported_versions) == ["1.0.0"]
    assert running.driver.is_registered
    call = running.kubelet.call
    plugin = await call(f"{messages.IDENTITY_SERVICE}/GetPluginInfo", None, messages.PluginInfoResponse)
    assert (plugin.name, plugin.vendor_version) == (IDENTITY_DRIVER, "1.2.3")
    assert (await call(f"{messages.IDENTITY_SERVICE}/Probe", None, messages.ProbeResponse)).ready.value
    node = await call(f"{messages.NODE_SERVICE}/NodeGetInfo", None, messages.NodeInfoResponse)
    assert node.node_id == NODE
    for method in (
        f"{messages.NODE_SERVICE}/NodeGetCapabilities",
        f"{messages.IDENTITY_SERVICE}/GetPluginCapabilities",
    ):
        assert (await call(method)).SerializeToString() == b""


async def test_a_kubelet_that_could_not_take_it_is_shown_a_new_socket(running):
    registration = running.kubelet.kubelet.registration(IDENTITY_DRIVER)
    before = registration.stat().st_ino
    await running.kubelet.register(takes=False)
    await eventually(lambda: not registration.exists())
    await eventually(lambda: registration.exists() and registration.stat().st_ino != before)
    assert not running.driver.is_registered
    await running.kubelet.register()
    assert running.driver.is_registered


async def test_only_root_can_call_it(running):
    plugin = running.kubelet.kubelet.plugin(IDENTITY_DRIVER)
    assert stat.S_IMODE(plugin.stat().st_mode) == 0o700
    for path in (plugin / "csi.sock", running.kubelet.kubelet.registration(IDENTITY_DRIVER)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_published_pod_has_a_socket_for_its_proxy_alone_and_gets_its_certificate(running):
    web = pod()
    volume = await running.kubelet.publish(web, running.node.token(web))
    found = (volume / SDS_SOCKET).stat()
    assert stat.S_ISSOCK(found.st_mode) and (found.st_uid, found.st_gid) == (0, PROXY_GID)
    assert stat.S_IMODE(found.st_mode) == 0o660 and stat.S_IMODE(volume.stat().st_mode) == 0o750
    assert len(os.fsencode(volume / SDS_SOCKET)) > 107  # as kubelet's are
    await eventually(lambda: running.agent.status(web.uid).serial)
    assert running.agent.status(web.uid).identity == "spiffe://cluster.local/ns/shop/sa/web"
    await running.kubelet.unpublish(web)
    assert not volume.exists() and running.agent.status(web.uid) is None
    await running.kubelet.unpublish(web)  # kubelet may call twice


async def test_newer_kubelets_put_the_token_into_secrets(running):
    web = pod()
    await running.kubelet.publish(web, running.node.token(web), in_secrets=True)
    await eventually(lambda: running.agent.status(web.uid).serial)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"ephemeral": "false"}, "only ephemeral volumes"),
        ({"pod_uid": None}, "podInfoOnMount"),
        ({"pod_uid": "0f6c6d6e-0000"}, "does not belong to pod shop/web-0"),
        ({"serviceAccount_name": "../x"}, "is not spiffe://"),
    ],
)
async def test_an_invalid_request_is_rejected_with_the_reason(running, context, words):
    web = pod()
    with refused(grpc.StatusCode.INVALID_ARGUMENT, words):
        await running.kubelet.publish(web, running.node.token(web), **context)
    assert not running.kubelet.volume(web).path.exists() and len(running.pods) == 0


@pytest.mark.parametrize(
    "path", ["/etc", "/etc/../x", "relative", "", "{root}/pods/../../x", "{root}/pods/u/volumes/x/y/z"]
)
async def test_a_path_that_is_not_a_volume_is_not_touched(running, path):
    path = path.format(root=running.kubelet.kubelet.root)
    for kind, method in (
        (messages.PublishRequest, "NodePublishVolume"),
        (messages.UnpublishRequest, "NodeUnpublishVolume"),
    ):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "is not a volume of a pod"):
            await running.kubelet.call(f"{messages.NODE_SERVICE}/{method}", kind(volume_id="csi-1", target_path=path))


async def test_without_a_token_a_new_pod_waits_and_a_published_one_runs_on(running):
    web = pod()
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "tokenRequests"):
        await running.kubelet.publish(web)
    assert not running.kubelet.volume(web).path.exists()
    await running.kubelet.publish(web, running.node.token(web))
    await eventually(lambda: running.agent.status(web.uid).serial)
    serial, made = running.agent.status(web.uid).serial, (running.kubelet.volume(web).path / SDS_SOCKET).stat()
    await running.kubelet.publish(web)  # no error: kubelet would unmount the volume of a running pod
    assert running.agent.status(web.uid).serial == serial
    assert os.path.samestat((running.kubelet.volume(web).path / SDS_SOCKET).stat(), made)


async def test_an_invalid_message_gets_a_status_and_affects_no_other_call(running):
    path = running.kubelet.kubelet.plugin(IDENTITY_DRIVER) / "csi.sock"
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a valid NodePublishVolumeRequest"):
            await channel.unary_unary(f"/{messages.NODE_SERVICE}/NodePublishVolume")(b"\xff\xff\xff")
        with refused(grpc.StatusCode.UNIMPLEMENTED, ""):
            await channel.unary_unary(f"/{messages.NODE_SERVICE}/NodeStageVolume")(b"")
    await running.kubelet.register()


async def test_an_internal_error_fails_only_its_own_call(running, monkeypatch):
    async def broken(*_):
        raise RuntimeError("not thought of")

    web = pod()
    monkeypatch.setattr(running.pods, "publish", broken)
    with refused(grpc.StatusCode.INTERNAL, "internal error of the node agent; see its log"):
        await running.kubelet.publish(web, running.node.token(web))
    monkeypatch.undo()
    await running.kubelet.publish(web, running.node.token(web))


async def test_many_pods_at_once(running):
    pods = [pod(f"web-{number}") for number in range(20)]
    await asyncio.gather(*(running.kubelet.publish(each, running.node.token(each)) for each in pods))
    await eventually(lambda: all(running.agent.status(each.uid).serial for each in pods))
    await asyncio.gather(*(running.kubelet.unpublish(each) for each in pods))
    assert len(running.pods) == 0 and running.agent.statuses() == []


async def test_a_root_that_is_not_kubelets_is_reported(tmp_path):
    async with kubernetes_node() as node:
        pods = NodePods(Agent(node.service, tmp_path / "private"), {}, None, trust_domain="cluster.local")
        driver = Driver(IDENTITY_DRIVER, "1", NODE, Kubelet(tmp_path / "nowhere"), pods)
        with pytest.raises(CsiListenError, match="is this kubelet's directory"):
            await driver.start()
