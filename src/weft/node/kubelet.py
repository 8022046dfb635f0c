"""Kubelet as the driver sees it: its directories, its registration of plugins, and which volumes it knows of.

Its root directory comes in; where sockets must be, and what was published before this agent began, leave. Rule: a path
that is not one of kubelet's own volumes is touched by nobody here.
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
    """One pod's, at the place where its container sees it."""

    id: str
    pod_uid: str
    path: Path


class Kubelet(msgspec.Struct, frozen=True):
    root: Path = ROOT

    def plugin(self, driver: str) -> Path:
        """The driver's own directory."""
        return self.root / "plugins" / driver

    def registration(self, driver: str) -> Path:
        return self.root / "plugins_registry" / f"{driver}-reg.sock"

    def volume(self, volume_id: str, path: str) -> Volume:
        """Raises ValueError, if kubelet would not have it there."""
        target = Path(path)
        try:
            uid, *below = target.relative_to(self.root / "pods").parts
        except ValueError:
            below, uid = [], ""
        fits = len(below) == 4 and below[:2] == ["volumes", "kubernetes.io~csi"] and ".." not in below
        if not (volume_id and fits and _UID.fullmatch(uid)):
            raise ValueError(f"{path!r} is no volume of a pod below {self.root}")
        return Volume(volume_id, uid, target)

    def volumes(self, driver: str) -> list[Volume]:
        """All that kubelet has, by its own notes, whether or not they were published."""
        found = []
        for note in sorted((self.root / "pods").glob(f"*/volumes/kubernetes.io~csi/*/{_DATA}")):
            try:
                with note.open("rb") as opened:
                    said = msgspec.json.decode(opened.read(_MOST_BYTES), type=_Note)
                if said.driver == driver:
                    found.append(self.volume(said.volume, str(note.parent / "mount")))
            except FileNotFoundError:
                continue  # gone while we look
            except (OSError, ValueError, RecursionError) as error:
                log.warning("%s cannot be read: %s; its volume is taken up when kubelet speaks of it", note, error)
        return found


class _Note(msgspec.Struct):
    driver: str = msgspec.field(name="driverName", default="")
    volume: str = msgspec.field(name="volumeHandle", default="")


class PluginRegistration:
    """Tells kubelet, when it asks, who this driver is and where it listens."""

    def __init__(self, driver: str, endpoint: Path) -> None:
        self._driver, self._endpoint = driver, endpoint
        self.is_registered = False
        self.refused = asyncio.Event()  # kubelet has said that it does not take it; whoever heeds that clears it

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
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is no RegistrationStatus")
        self.is_registered = status.plugin_registered
        if self.is_registered:
            log.info("kubelet has taken the driver %s", self._driver)
        else:
            log.error("kubelet does not take the driver %s: %s", self._driver, status.error)
            self.refused.set()
        return b""
