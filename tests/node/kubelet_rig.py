"""A client that calls a CSI driver as kubelet does, in kubelet's directories, and a test node: a CA on TLS, tokens,
state in memory, and the agent as a process.

The real kubelet is tested in tests/on_cluster; here only its calls and its files are imitated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import uuid
from datetime import timedelta
from pathlib import Path

import grpc.aio

from eventually import eventually
from identity_rig import TRUST_DOMAIN
from node_rig import Control
from weft.ca.authority import Authority
from weft.ca.server import CaServer
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.tokens import Caller
from weft.model.proxy import IDENTITY_DRIVER, IDENTITY_VOLUME
from weft.node import csi_messages as messages
from weft.node.kubelet import Kubelet, Volume
from weft.node.pods import KubeletPod
from weft.xds.node_server import NodeServer

NODE = "worker-1"


def pod(name="web-0", *, namespace="shop", account="web", uid="") -> KubeletPod:
    return KubeletPod(namespace, name, uid or str(uuid.uuid4()), account)


class KubeletCaller:
    def __init__(self, root: Path, driver: str = IDENTITY_DRIVER) -> None:
        self.kubelet, self.driver = Kubelet(root), driver
        for name in ("plugins", "plugins_registry", "pods"):
            (root / name).mkdir(mode=0o750, parents=True)

    def volume(self, of: KubeletPod, name: str = IDENTITY_VOLUME) -> Volume:
        path = self.kubelet.root / "pods" / of.uid / "volumes" / "kubernetes.io~csi" / name / "mount"
        return Volume(f"csi-{of.uid}-{name}", of.uid, path)

    async def call(self, method: str, request=None, answer=messages.Nothing, *, path: Path | None = None):
        """Call a method of the driver. Raises grpc.aio.AioRpcError."""
        path = path or self.kubelet.plugin(self.driver) / "csi.sock"
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            payload = (request or messages.Nothing()).SerializeToString()
            return answer.FromString(await channel.unary_unary(f"/{method}")(payload, timeout=30))

    async def register(self, *, takes: bool = True):
        """Register the driver as kubelet does when a socket appears in its registry. Return the driver's information."""
        path = self.kubelet.registration(self.driver)
        await eventually(path.is_socket)
        method = f"{messages.REGISTRATION_SERVICE}/GetInfo"
        info = await eventually(  # the socket exists a moment before the driver listens on it
            lambda: self.call(method, None, messages.RegisteredPlugin, path=path), retry=grpc.aio.AioRpcError
        )
        status = messages.RegistrationStatus(plugin_registered=takes, error="" if takes else "not today")
        await self.call(f"{messages.REGISTRATION_SERVICE}/NotifyRegistrationStatus", status, path=path)
        return info

    async def publish(
        self, of: KubeletPod, token: str = "", *, in_secrets=False, name=IDENTITY_VOLUME, **context
    ) -> Path:
        """Publish a volume and return its path. `context` has fields that differ from kubelet's; None removes a field."""
        volume = self.volume(of, name)
        self.write_down(of, name)
        said = {
            "ephemeral": "true",
            "pod.name": of.name,
            "pod.namespace": of.namespace,
            "pod.uid": of.uid,
            "serviceAccount.name": of.service_account,
            **{field.replace("_", "."): value for field, value in context.items()},
        }
        tokens = {"istio-ca": {"token": token, "expirationTimestamp": "2030-01-01T00:00:00Z"}} if token else {}
        carried = {"csi.storage.k8s.io/serviceAccount.tokens": json.dumps(tokens)}
        request = messages.PublishRequest(
            volume_id=volume.id,
            target_path=str(volume.path),
            readonly=True,
            secrets=carried if in_secrets else {},
            volume_context={
                **{f"csi.storage.k8s.io/{field}": value for field, value in said.items() if value is not None},
                **({} if in_secrets else carried),
            },
        )
        await self.call(f"{messages.NODE_SERVICE}/NodePublishVolume", request)
        return volume.path

    async def unpublish(self, of: KubeletPod, name: str = IDENTITY_VOLUME) -> None:
        volume = self.volume(of, name)
        request = messages.UnpublishRequest(volume_id=volume.id, target_path=str(volume.path))
        await self.call(f"{messages.NODE_SERVICE}/NodeUnpublishVolume", request)
        (volume.path.parent / "vol_data.json").unlink(missing_ok=True)

    def write_down(self, of: KubeletPod, name: str = IDENTITY_VOLUME, **more) -> Path:
        """Write kubelet's record of a volume, which kubelet writes before it calls the driver."""
        volume = self.volume(of, name)
        volume.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        note = {
            "attachmentID": "",
            "driverName": self.driver,
            "nodeName": NODE,
            "specVolID": name,
            "volumeHandle": volume.id,
            "volumeLifecycleMode": "Ephemeral",
            **more,
        }
        file = volume.path.parent / "vol_data.json"
        file.write_text(json.dumps(note))
        return file


class ControlServer(CaServer):
    """A control plane that signs certificates and rejects requests for configuration."""

    def handlers(self):
        async def anybody(_peer, _token):
            return None

        control = Control({})
        return (*super().handlers(), NodeServer(control.snapshots, control).handlers(anybody))


class KubernetesNode:
    """Everything that an agent needs on its node."""

    def __init__(self, directory: Path, state: Path) -> None:
        self.directory, self.state = directory, state
        self.kubelet = KubeletCaller(directory / "kubelet")
        self.authority = Authority.in_memory(TRUST_DOMAIN)
        self.issuer = TokenIssuer()
        self.service = CertificateService(self.authority, self.issuer.checker())
        self.address = ""
        self.roots_file, self.token_file = directory / "root-cert.pem", directory / "istio-token"
        self._server: ControlServer | None = None
        self.write_roots(self.authority)
        self.token_file.write_text(self.token(pod("weft-node-x", namespace="istio-system", account="weft-node")))

    def token(self, of: KubeletPod, **more) -> str:
        caller = Caller(of.namespace, of.service_account, of.name, of.uid)
        return self.issuer.issue(caller, **{"lifetime": timedelta(hours=1), **more})

    def write_roots(self, authority: Authority) -> None:
        fresh = self.roots_file.with_suffix(".new")
        fresh.write_text("".join(authority.bundle()))
        fresh.rename(self.roots_file)

    async def open_ca(self) -> None:
        self._server = ControlServer(self.service)
        self.address = await self._server.listen(self.address or "127.0.0.1:0")

    async def close_ca(self) -> None:
        if self._server is not None:
            await self._server.close()
        self._server = None

    def arguments(self, *more: str) -> list[str]:
        return [
            *("node", "--kubernetes", "--node-name", NODE, "--kubelet-root", str(self.kubelet.kubelet.root)),
            *("--control", self.address, "--ca-root", str(self.roots_file), "--token", str(self.token_file)),
            *("--state", str(self.state), "--health", "127.0.0.1:0", *more),
        ]

    @contextlib.asynccontextmanager
    async def agent(self, *more: str, prefix: tuple[str, ...] = ()):
        """Run the agent as a process that is registered with kubelet."""
        registration = self.kubelet.kubelet.registration(self.kubelet.driver)
        registration.unlink(missing_ok=True)
        with (self.directory / "agent.log").open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *prefix,
                *(sys.executable, "-m", "weft.cli", *self.arguments(*more)),
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        try:
            await self.kubelet.register()
            yield process
        except BaseException as error:
            error.add_note(self.log())
            raise
        finally:
            if process.returncode is None:
                # What unshare started is sent SIGTERM when unshare ends, and by nothing else.
                process.kill() if "unshare" in prefix else process.terminate()
            async with asyncio.timeout(30):
                await process.wait()
                if prefix:
                    await eventually(lambda: not registration.exists())

    def log(self) -> str:
        return (self.directory / "agent.log").read_text()


@contextlib.asynccontextmanager
async def kubernetes_node():
    """Not in pytest's own directory: the driver's sockets have addresses, which must be short as on a real node."""
    directory, state = (
        Path(tempfile.mkdtemp(prefix="weft-k-")),
        Path(tempfile.mkdtemp(prefix="weft-k-", dir="/dev/shm")),
    )
    directory.chmod(0o755)
    node = KubernetesNode(directory, state)
    await node.open_ca()
    try:
        yield node
    finally:
        await node.close_ca()
        node.authority.close()
        for each in (directory, state):
            shutil.rmtree(each)
