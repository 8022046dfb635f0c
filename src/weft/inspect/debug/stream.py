"""Serve debug pages on an xDS stream, as `istioctl --xds-address` requests them (`weft.xds.debug.Debugger`).

`syncz` returns a message per proxy, `config_dump` the sections of the dump, every other name the body of its page.
Rule: only two kinds of clients may read the pages: service accounts of the control plane's namespace, and clients of a
socket that only the owner of this machine can reach.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import msgspec
from envoy.service.status.v3 import csds_pb2
from google.protobuf.any_pb2 import Any as AnyMessage

from weft import __version__
from weft.control.access import Principal
from weft.control.sync_status import NOT_SENT, STALE, ProxySync, TypeSync
from weft.inspect.debug import config_dump
from weft.inspect.debug.pages import NOT_HERE, Debug
from weft.xds.clients import Peer
from weft.xds.debug import PREFIX
from weft.xds.request import StreamRefused

_CLIENT_CONFIG = "type.googleapis.com/envoy.service.status.v3.ClientConfig"
_STATUS = {STALE: csds_pb2.STALE, NOT_SENT: csds_pb2.NOT_SENT}


class DebugStream:
    def __init__(self, debug: Debug, namespace: str, owned: Set[str]) -> None:
        """`namespace`: the namespace whose service accounts may read the pages; "" for none. `owned`: the names of
        listeners that only the owner of this machine can connect to, and whose clients may all read the pages."""
        self._debug, self._namespace, self._owned = debug, namespace, owned

    @property
    def identifier(self) -> str:
        info = {"version": __version__, "revision": "", "golang_version": "", "status": "", "tag": __version__}
        about = {"Component": "istiod", "ID": self._debug.diagnosis.replica, "Info": info}
        return msgspec.json.encode(about).decode()

    def admit(self, peer: Peer) -> None:
        if peer.listener in self._owned:
            return
        principal = peer.principal
        if not isinstance(principal, Principal):
            raise StreamRefused("debug pages need an authenticated client: use the port with TLS")
        if not self._namespace or principal.namespace != self._namespace:
            raise StreamRefused(f"{principal} is not a service account of the control plane's namespace")

    async def answer(self, type_url: str, names: tuple[str, ...]) -> Sequence[AnyMessage]:
        page = type_url.removeprefix(PREFIX).removeprefix("/")
        if page == "syncz":
            return [_any(client_config(each.sync)) for each in self._debug.diagnosis.proxies()]
        if page == "config_dump":
            if len(names) != 1:
                raise StreamRefused(f"{type_url} needs exactly one proxy, as POD.NAMESPACE")
            proxy = self._debug.diagnosis.find(names[0])
            if proxy is None:
                # istioctl tries the next replica only after this text. An empty response would mean a proxy without
                # config.
                return [AnyMessage(type_url=PREFIX, value=NOT_HERE.encode())]
            return config_dump.as_messages(self._debug.diagnosis, proxy.group)
        if not page:
            if len(names) != 1:
                raise StreamRefused(f"{type_url} needs one name, such as syncz or list")
            page = names[0]
        url = urlsplit(page)
        response = await self._debug.answer(url.path, dict(parse_qsl(url.query, keep_blank_values=True)))
        return [AnyMessage(type_url=PREFIX, value=response.body)]


def client_config(sync: ProxySync) -> csds_pb2.ClientConfig:
    config = csds_pb2.ClientConfig()
    config.node.id = sync.proxy
    metadata = {"CLUSTER_ID": sync.cluster_id, "NAMESPACE": sync.namespace, "ISTIO_VERSION": sync.istio_version}
    config.node.metadata.update({key: value for key, value in metadata.items() if value})
    for type_url, each in sorted(sync.resources.items()):
        entry = config.generic_xds_configs.add(type_url=type_url, config_status=_status(each))
        at = _last_updated(each)
        if at is not None:
            entry.last_updated.FromDatetime(at)
        if each.last_error:
            entry.error_state.details = each.last_error
            entry.error_state.last_update_attempt.CopyFrom(entry.last_updated)
    return config


def _status(sync: TypeSync) -> csds_pb2.ConfigStatus:
    if sync.last_error:
        return csds_pb2.ERROR
    return _STATUS.get(sync.state, csds_pb2.SYNCED)


def _last_updated(sync: TypeSync) -> datetime | None:
    """The time from which istioctl computes the age that it shows for a resource type (`sync`): when the type was last
    pushed or, if it is STALE, when it became stale. None if nothing was pushed."""
    if sync.state == STALE:
        return datetime.now(UTC) - timedelta(seconds=sync.stale_seconds or 0.0)
    return datetime.fromisoformat(sync.sent_time) if sync.sent_time else None


def _any(config: csds_pb2.ClientConfig) -> AnyMessage:
    return AnyMessage(type_url=_CLIENT_CONFIG, value=config.SerializeToString())
