"""The CSI driver that kubelet calls: a pod's volume is a directory with the agent's sockets for that pod.

Kubelet calls over a Unix socket that only root can open; `pods.py` gets the pod and the token of each call. Nothing is
mounted here: the driver creates the sockets in the directory that kubelet names, and kubelet mounts that directory into
the pod. So the agent's only privilege is to give its sockets to the proxy's group. Rule: every call of kubelet gets a
response, even a malformed call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from weft.base.backoff import Backoff
from weft.model.identity import Identity, parse_identity
from weft.node import csi_messages as messages
from weft.node.kubelet import Kubelet, PluginRegistration, Volume
from weft.node.pods import KubeletPod, NodePods, VolumeRefused
from weft.node.tokens import AUDIENCE, token_for

log = logging.getLogger("weft.node.csi")

_KEY = "csi.storage.k8s.io/{}"
_MOST_BYTES = 1 << 20
# Seconds before the registration socket is created again. Kubelet checks every second and must notice that the socket
# was missing.
_FIRST_DELAY, _MOST_DELAY = 2.0, 10.0

Context = grpc.aio.ServicerContext[bytes, bytes]
_Handling = Callable[[Any], Awaitable[Any]]


class CsiListenError(Exception):
    """One of the driver's two sockets, for CSI calls or for the registration, cannot be created."""


class Driver:
    """The driver's gRPC servers. `name` is the name of the CSIDriver object, `node_id` the name of the Node."""

    def __init__(
        self, name: str, version: str, node_id: str, kubelet: Kubelet, pods: NodePods, *, audience: str = AUDIENCE
    ) -> None:
        self.name, self._version, self._node_id = name, version, node_id
        self._kubelet, self._pods, self._audience = kubelet, pods, audience
        self._endpoint = kubelet.plugin(name) / "csi.sock"
        self._registration = PluginRegistration(name, self._endpoint)
        self._server: grpc.aio.Server | None = None
        self._registrar: grpc.aio.Server | None = None
        self._registering: asyncio.Task[None] | None = None

    @property
    def is_registered(self) -> bool:
        return self._registration.is_registered

    async def start(self) -> None:
        """Create both sockets and listen. Kubelet watches for the registration socket, so that socket is created last.
        Raises CsiListenError."""
        try:
            self._endpoint.parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CsiListenError(
                f"cannot create {self._endpoint.parent}: {error}; is this kubelet's directory?"
            ) from error
        self._server = await _listening(self._endpoint, self._identity(), self._node())
        await self._register()
        self._registering = asyncio.create_task(self._register_again(), name="registration")
        log.info("the driver %s listens at %s", self.name, self._endpoint)

    async def close(self, grace: float | None = 2.0) -> None:
        """Stop both servers, the registration first, so that kubelet does not call a driver that is about to stop.
        `grace`: how many seconds calls in progress may take; None: they are aborted at once."""
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.wait({self._registering})
        for server in (self._registrar, self._server):
            if server is not None:
                await server.stop(grace)

    async def _register(self) -> None:
        self._registrar = await _listening(self._kubelet.registration(self.name), self._registration.handler())

    async def _register_again(self) -> None:
        """Recreate the registration socket whenever kubelet has rejected the driver. Kubelet registers a driver once
        per socket: if that failed, for example because the API server was unreachable, kubelet would ignore the
        driver until it sees a new socket."""
        backoff = Backoff(first=_FIRST_DELAY, most=_MOST_DELAY)
        while True:
            await self._registration.refused.wait()
            self._registration.refused.clear()
            if self._registrar is not None:
                await self._registrar.stop(_FIRST_DELAY)  # kubelet's call is still open
                self._registrar = None
            with contextlib.suppress(OSError):
                self._kubelet.registration(self.name).unlink(missing_ok=True)
            await asyncio.sleep(backoff.next())
            try:
                await self._register()
            except CsiListenError as error:
                log.error("%s", error)
                self._registration.refused.set()

    # CSI's gRPC methods, as kubelet calls them

    def _identity(self) -> grpc.GenericRpcHandler:
        async def info(_request: Any) -> Any:
            return messages.PluginInfoResponse(name=self.name, vendor_version=self._version)

        async def probe(_request: Any) -> Any:
            return messages.ProbeResponse(ready={"value": True})

        return _service(
            messages.IDENTITY_SERVICE,
            GetPluginInfo=(messages.Nothing, info),
            GetPluginCapabilities=(messages.Nothing, _nothing),  # no controller, no topology
            Probe=(messages.Nothing, probe),
        )

    def _node(self) -> grpc.GenericRpcHandler:
        async def info(_request: Any) -> Any:
            return messages.NodeInfoResponse(node_id=self._node_id)

        return _service(
            messages.NODE_SERVICE,
            NodeGetInfo=(messages.Nothing, info),
            NodeGetCapabilities=(messages.Nothing, _nothing),  # no staging, no statistics
            NodePublishVolume=(messages.PublishRequest, self._publish),
            NodeUnpublishVolume=(messages.UnpublishRequest, self._unpublish),
        )

    async def _publish(self, request: Any) -> Any:
        context, secrets = dict(request.volume_context), dict(request.secrets)
        volume = self._kubelet.volume(request.volume_id, request.target_path)
        pod = _pod(context, volume)
        try:
            token = token_for(self._audience, context, secrets)
        except ValueError as error:
            log.error("%s: %s", pod, error)
            token = ""  # the first time, a missing token is an error; later the last token may still be valid
        await self._pods.publish(volume, pod, token)
        return messages.Nothing()

    async def _unpublish(self, request: Any) -> Any:
        await self._pods.unpublish(self._kubelet.volume(request.volume_id, request.target_path))
        return messages.Nothing()


async def _listening(path: Path, *handlers: grpc.GenericRpcHandler) -> grpc.aio.Server:
    """Start a gRPC server on the Unix socket `path`. Raises CsiListenError."""
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", _MOST_BYTES),))
    server.add_generic_rpc_handlers(handlers)
    umask = os.umask(0o177)  # so that the socket is never open to other users, not even while it is created
    try:
        path.unlink(missing_ok=True)  # left by an agent that was killed
        server.add_insecure_port(f"unix:{path}")
    except (RuntimeError, OSError) as error:
        await server.stop(None)
        raise CsiListenError(f"cannot create the socket {path}: {error}; is this kubelet's directory?") from error
    finally:
        os.umask(umask)
    await server.start()
    return server


def _pod(context: dict[str, str], volume: Volume) -> KubeletPod:
    """Return the pod that kubelet describes in `context`, the volume context of a CSI call. Raises ValueError if a
    field is missing, or if `volume` belongs to another pod."""
    if context.get(_KEY.format("ephemeral")) != "true":
        raise ValueError("this driver has only ephemeral volumes: use `csi:` in the pod's `volumes:`")
    fields = ("pod.namespace", "pod.name", "pod.uid", "serviceAccount.name")
    values = [context.get(_KEY.format(field), "") for field in fields]
    if lacking := [field for field, value in zip(fields, values, strict=True) if not value]:
        raise ValueError(f"kubelet did not send {', '.join(lacking)}: the CSIDriver needs podInfoOnMount: true")
    pod = KubeletPod(*values)
    if pod.uid != volume.pod_uid:
        raise ValueError(f"the volume at {volume.path} does not belong to pod {pod}, whose UID is {pod.uid}")
    parse_identity(str(Identity("cluster.local", pod.namespace, pod.service_account)))
    return pod


async def _nothing(_request: Any) -> Any:
    return messages.Nothing()


def _service(name: str, **methods: tuple[Any, _Handling]) -> grpc.GenericRpcHandler:
    """Return a gRPC service whose methods parse requests themselves, without gRPC's deserializers, so that a parse
    error gets a proper response."""

    def behavior(kind: Any, handle: _Handling) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def serve(payload: bytes, context: Context) -> bytes:
            try:
                answer: bytes = (await handle(kind.FromString(payload))).SerializeToString()
            except DecodeError:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT, f"the message is not a valid {kind.DESCRIPTOR.name}"
                )
            except ValueError as error:
                log.error("invalid call of kubelet: %s", error)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except VolumeRefused as refused:
                log.error("%s", refused)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))
            except Exception:
                log.exception("a call of kubelet failed because of an unexpected error; other calls are not affected")
                await context.abort(grpc.StatusCode.INTERNAL, "internal error of the node agent; see its log")
            return answer

        return serve

    return grpc.method_handlers_generic_handler(
        name,
        {
            method: grpc.unary_unary_rpc_method_handler(behavior(kind, handle))
            for method, (kind, handle) in methods.items()
        },
    )
