from __future__ import annotations

import tempfile
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.kubelet_rig import KubeletCaller, pod
from weft.node import csi_messages as messages
from weft.node.kubelet import Kubelet, PluginRegistration


@pytest.fixture
def caller():
    with tempfile.TemporaryDirectory(prefix="weft-k-") as short:
        yield KubeletCaller(Path(short) / "kubelet")


def test_volumes_are_those_kubelet_noted_for_this_driver_published_or_not(caller, caplog):
    web, api, other, broken, odd = (pod(name) for name in ("web-0", "api-0", "other-0", "broken-0", "odd-0"))
    caller.write_down(web)
    caller.write_down(api, "another-name")
    caller.write_down(other, driverName="csi.other.dev")
    caller.write_down(broken).write_text('{"driverName": ')
    caller.write_down(odd, volumeHandle="")
    found = caller.kubelet.volumes(caller.driver)
    assert sorted(found, key=lambda each: each.id) == sorted(
        [caller.volume(web), caller.volume(api, "another-name")], key=lambda each: each.id
    )
    assert broken.uid in caplog.text and odd.uid in caplog.text and other.uid not in caplog.text


def test_a_kubelet_without_pods_has_no_volumes(tmp_path):
    assert Kubelet(tmp_path / "nothing").volumes("csi.weft.dev") == []


@pytest.mark.parametrize(
    "path",
    [
        "",
        "pods/u/volumes/kubernetes.io~csi/w/mount",
        "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/../mount",
        "/var/lib/kubelet/pods/../volumes/kubernetes.io~csi/w/mount",
        "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/w/mount/deeper",
        "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/w/mount",
        "/var/lib/kubelet/pods",
        "/etc/pods/u/volumes/kubernetes.io~csi/w/mount",
    ],
)
def test_what_is_not_a_volume_of_kubelets_is_refused(path):
    with pytest.raises(ValueError, match="is not a volume of a pod"):
        Kubelet().volume("csi-1", path)


def test_the_path_of_a_volume_contains_the_uid_of_its_pod():
    path = "/var/lib/kubelet/pods/0f6c6d6e-5f0c/volumes/kubernetes.io~csi/workload-socket/mount"
    assert Kubelet().volume("csi-1", path).pod_uid == "0f6c6d6e-5f0c"
    with pytest.raises(ValueError):
        Kubelet().volume("", path)


async def test_kubelet_reports_whether_it_registered_the_driver(caller, tmp_path, caplog):
    registration = PluginRegistration(caller.driver, tmp_path / "csi.sock")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((registration.handler(),))
    path = caller.kubelet.registration(caller.driver)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    info = await caller.register(takes=False)
    assert info.endpoint == str(tmp_path / "csi.sock")
    assert not registration.is_registered and "rejected the driver csi.weft.dev: not today" in caplog.text
    await caller.register()
    assert registration.is_registered
    with pytest.raises(grpc.aio.AioRpcError):
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            await channel.unary_unary(f"/{messages.REGISTRATION_SERVICE}/NotifyRegistrationStatus")(b"\xff")
    await server.stop(None)
