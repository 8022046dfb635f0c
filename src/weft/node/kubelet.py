"""Kubelet's interface to a CSI driver: its directories, its plugin registration, and the volumes that it has recorded.

Input: kubelet's root directory. Output: the paths of the driver's sockets, and the volumes that were published before
this agent started. Rule: only paths that are volumes of a pod below kubelet's root are ever touched.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import DecodeError

from weft.node import csi_messages as messages

log = logging.getLogger("weft.node.kubelet")

ROOT = Path("/var/lib/kubelet")
VERSIONS = ("1.0.0",)
_DATA = "vol_data.json"
_MOST_BYTES = 64 * 1024
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,127}")

Context = grpc.aio.ServicerContext[bytes, bytes]


class Volume(msgspec.Struct, frozen=True):
    """The CSI volume of one pod. `id`: the volume's id in CSI calls. `path`: the directory that kubelet mounts into the
    pod's container."""

    id: str
    pod_uid: str
    path: Path


class Kubelet(msgspec.Struct, frozen=True):
    root: Path = ROOT

    def plugin(self, driver: str) -> Path:
        """Return the plugin directory of the driver."""
        return self.root / "plugins" / driver

    def registration(self, driver: str) -> Path:
        return self.root / "plugins_registry" / f"{driver}-reg.sock"

    def volume(self, volume_id: str, path: str) -> Volume:
        """Return the volume at `path`. Raises ValueError if kubelet would not place a pod's CSI volume there."""
        target = Path(path)
        try:
            uid, *below = target.relative_to(self.root / "pods").parts
        except ValueError:
            below, uid = [], ""
        fits = len(below) == 4 and below[:2] == ["volumes", "kubernetes.io~csi"] and ".." not in below
        if not (volume_id and fits and _UID.fullmatch(uid)):
            raise ValueError(f"{path!r} is not a volume of a pod below {self.root}")
        return Volume(volume_id, uid, target)

    def volumes(self, driver: str) -> list[Volume]:
        """Return every volume of this driver that kubelet has recorded in a `vol_data.json`, published or not."""
        volumes = []
        for note in sorted((self.root / "pods").glob(f"*/volumes/kubernetes.io~csi/*/{_DATA}")):
            try:
                with note.open("rb") as opened:
                    record = msgspec.json.decode(opened.read(_MOST_BYTES), type=_Note)
                if record.driver == driver:
                    volumes.append(self.volume(record.volume, str(note.parent / "mount")))
            except FileNotFoundError:
                continue  # removed since the directory was listed
            except (OSError, ValueError, RecursionError) as error:
                log.warning("%s cannot be read: %s; its volume is served after kubelet's next call for it", note, error)
        return volumes


class _Note(msgspec.Struct):
    driver: str = msgspec.field(name="driverName", default="")
    volume: str = msgspec.field(name="volumeHandle", default="")


class PluginRegistration:
    """Kubelet's plugin registration service: returns the driver's name and socket to kubelet, and records whether
    kubelet has accepted the driver."""

    def __init__(self, driver: str, endpoint: Path) -> None:
        self._driver, self._endpoint = driver, endpoint
        self.is_registered = False
        self.refused = asyncio.Event()  # set when kubelet has rejected the driver; cleared by the driver

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            messages.REGISTRATION_SERVICE,
            {
                "GetInfo": grpc.unary_unary_rpc_method_handler(self._info),
                "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(self._status),
            },
        )

    async def _info(self, _payload: bytes, _context: Context) -> bytes:
        info = messages.RegisteredPlugin(
            type="CSIPlugin", name=self._driver, endpoint=str(self._endpoint), supported_versions=VERSIONS
        )
        answer: bytes = info.SerializeToString()
        return answer

    async def _status(self, payload: bytes, context: Context) -> bytes:
        try:
            status = messages.RegistrationStatus.FromString(payload)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a valid RegistrationStatus")
        self.is_registered = status.plugin_registered
        if self.is_registered:
            log.info("kubelet has registered the driver %s", self._driver)
        else:
            log.error("kubelet rejected the driver %s: %s", self._driver, status.error)
            self.refused.set()
        return b""
