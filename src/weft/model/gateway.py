"""The edge of the mesh as a Gateway resource states it: which ports and hosts a gateway proxy serves."""

from __future__ import annotations

import msgspec

from weft.model.names import Labels, Origin
from weft.model.service import ServicePort


class ServerTls(msgspec.Struct, frozen=True):
    mode: str = "PASSTHROUGH"
    https_redirect: bool = False
    credential_name: str = ""
    server_certificate: str = ""
    private_key: str = ""
    ca_certificates: str = ""
    subject_alt_names: tuple[str, ...] = ()
    minimum_version: str = ""
    maximum_version: str = ""
    cipher_suites: tuple[str, ...] = ()


class GatewayServer(msgspec.Struct, frozen=True):
    port: ServicePort
    hosts: tuple[str, ...]
    name: str = ""
    bind: str = ""
    tls: ServerTls | None = None


class Gateway(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    servers: tuple[GatewayServer, ...]
    selector: Labels = ()
    created: str = ""
    origin: Origin | None = None
