"""The edge of the mesh as a Gateway resource states it: which ports and hosts a gateway proxy serves, and how callers
from outside are met there. What a proxy makes of all that select it is `gateways.py`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.names import Labels, Origin
from weft.model.service import Protocol, ServicePort


class ServerTlsMode(StrEnum):
    PASSTHROUGH = "PASSTHROUGH"  # what is in it is not looked into: its name (SNI) tells where it goes
    SIMPLE = "SIMPLE"
    MUTUAL = "MUTUAL"  # the caller shows a certificate, too
    OPTIONAL_MUTUAL = "OPTIONAL_MUTUAL"  # it may, and what it shows must be good
    ISTIO_MUTUAL = "ISTIO_MUTUAL"  # by the mesh's own certificates


class CredentialRef(msgspec.Struct, frozen=True, order=True):
    """A Secret by its name."""

    name: str
    namespace: str = ""  # "": the proxy's own


class CertificateFiles(msgspec.Struct, frozen=True):
    """In the proxy's own file system."""

    certificate: str
    private_key: str


class ServerTls(msgspec.Struct, frozen=True):
    mode: ServerTlsMode = ServerTlsMode.PASSTHROUGH
    https_redirect: bool = False  # of a server of plain HTTP, which has nothing else of this
    credentials: tuple[CredentialRef, ...] = ()  # what it shows: from Secrets,
    files: tuple[CertificateFiles, ...] = ()  # or from files; several of different kinds of keys
    authorities: str = ""  # whom it trusts: a file,
    authorities_credential: CredentialRef | None = (
        None  # or a Secret; neither: what comes with the first of `credentials`
    )
    roots: str = ""  # or the certificates themselves, as PEM
    revoked: str = ""  # a file
    subject_alt_names: tuple[str, ...] = ()  # who may call
    spki: tuple[str, ...] = ()  # or whose key has one of these digests (base64)
    hashes: tuple[str, ...] = ()  # or whose certificate has (hexadecimal)
    minimum_version: str = ""
    maximum_version: str = ""
    cipher_suites: tuple[str, ...] = ()

    @property
    def terminates(self) -> bool:
        return self.mode is not ServerTlsMode.PASSTHROUGH

    @property
    def asks(self) -> bool:
        """For the caller's certificate, by somebody else's authorities than the mesh's."""
        return self.mode in (ServerTlsMode.MUTUAL, ServerTlsMode.OPTIONAL_MUTUAL)


class GatewayServer(msgspec.Struct, frozen=True):
    port: ServicePort
    hosts: tuple[str, ...]  # HOST, or NAMESPACE/HOST for the routes of one namespace alone
    name: str = ""
    bind: str = ""
    tls: ServerTls | None = None

    @property
    def encrypted(self) -> bool:
        return self.port.protocol in (Protocol.HTTPS, Protocol.TLS)

    @property
    def is_http(self) -> bool:
        """Whether its requests are looked at one by one."""
        if self.port.protocol is Protocol.HTTPS:
            return self.tls is not None and self.tls.terminates
        return self.port.protocol.is_http

    @property
    def redirects(self) -> bool:
        return self.tls is not None and self.tls.https_redirect and not self.encrypted


class Gateway(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    servers: tuple[GatewayServer, ...]
    selector: Labels = ()  # of the proxies' workloads, in any namespace
    within: str = ""  # unless this says which
    created: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> str:
        """As VirtualServices name it."""
        return f"{self.namespace}/{self.name}"
