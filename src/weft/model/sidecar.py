"""A Sidecar resource: the ports on which a proxy listens and the services that it may see."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.destination_rule import ConnectionPool
from weft.model.gateway import ServerTls
from weft.model.names import Labels, Origin
from weft.model.service import ServicePort
from weft.model.virtual_service import Destination


class OutboundPolicy(StrEnum):
    ALLOW_ANY = "ALLOW_ANY"
    REGISTRY_ONLY = "REGISTRY_ONLY"


Outbound = OutboundPolicy | Destination  # calls to unknown destinations: allowed, blocked, or sent to this egress proxy


EVERY_ADDRESS = "0.0.0.0"  # all IPv4 addresses; a proxy that listens there also listens at all IPv6 addresses


class EgressListener(msgspec.Struct, frozen=True):
    """An entry of a Sidecar's `egress`: hosts that its workloads may call, on one port or on all. If `bind` is set, the
    hosts are called at this address, which is `unix:///PATH` or an IP address: the proxy listens there if `captured` is
    false, else calls to the address are intercepted."""

    hosts: tuple[str, ...]  # NAMESPACE/HOST, with "." and "*" and "~" as in Istio
    port: ServicePort | None = None
    bind: str = ""
    captured: bool = True


class IngressListener(msgspec.Struct, frozen=True):
    """An entry of a Sidecar's `ingress`: a port on which its workloads are called. If `bind` is set, the proxy listens
    at this IP address itself (`captureMode: NONE`), and calls to the port are not expected to be intercepted."""

    port: ServicePort
    default_endpoint: str = ""  # "127.0.0.1:8080", "unix:///path"; "": the port itself
    bind: str = ""
    pool: ConnectionPool | None = None
    tls: ServerTls | None = None  # terminated by the proxy where mutual TLS is disabled


class Sidecar(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    selector: Labels | None = None  # None: the whole namespace
    egress: tuple[EgressListener, ...] = ()  # (): everything that is exported to the namespace
    ingress: tuple[IngressListener, ...] = ()  # (): the ports of the services that select the proxy
    outbound_policy: Outbound | None = None
    inbound_pool: ConnectionPool | None = None  # for every port without its own pool settings
    created: str = ""
    origin: Origin | None = None
