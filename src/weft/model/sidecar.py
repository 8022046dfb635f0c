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


class EgressListener(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]  # NAMESPACE/HOST, with "." and "*" and "~" as in Istio
    port: ServicePort | None = None


class IngressListener(msgspec.Struct, frozen=True):
    port: ServicePort
    default_endpoint: str = ""  # "127.0.0.1:8080", "unix:///path"; "": the port itself
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
