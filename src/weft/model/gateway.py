"""A Gateway resource: the ports and hosts that a gateway proxy serves, and their TLS settings. `mesh/gateways.py`
combines all Gateways that select a proxy."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.names import CredentialRef, Labels, Origin
from weft.model.service import Protocol, ServicePort


class ServerTlsMode(StrEnum):
    PASSTHROUGH = "PASSTHROUGH"  # TLS is not terminated: connections are routed by SNI
    SIMPLE = "SIMPLE"
    MUTUAL = "MUTUAL"  # a client certificate is required
    OPTIONAL_MUTUAL = "OPTIONAL_MUTUAL"  # a client certificate is optional, but must be valid
    ISTIO_MUTUAL = "ISTIO_MUTUAL"  # with the mesh's own certificates


class CertificateFiles(msgspec.Struct, frozen=True):
    """Paths of a certificate and its key in the proxy's file system."""

    certificate: str
    private_key: str


class ServerTls(msgspec.Struct, frozen=True):
    mode: ServerTlsMode = ServerTlsMode.PASSTHROUGH
    https_redirect: bool = False  # only for a plain HTTP server, for which all other fields here are unset
    credentials: tuple[CredentialRef, ...] = ()  # server certificates: from Secrets,
    files: tuple[CertificateFiles, ...] = ()  # or from files; several if their kinds of keys differ
    authorities: str = ""  # CA certificates for client certificates: a file,
    authorities_credential: CredentialRef | None = None  # or a Secret; neither: those of the first of `credentials`
    roots: str = ""  # or the certificates themselves, as PEM
    unverified: bool = False  # client certificates of any CA are accepted
    revoked: str = ""  # a file
    subject_alt_names: tuple[str, ...] = ()  # of client certificates that are accepted
    spki: tuple[str, ...] = ()  # or digests of their public keys (base64)
    hashes: tuple[str, ...] = ()  # or digests of the certificates (hexadecimal)
    minimum_version: str = ""
    maximum_version: str = ""
    cipher_suites: tuple[str, ...] = ()

    @property
    def terminates(self) -> bool:
        return self.mode is not ServerTlsMode.PASSTHROUGH

    @property
    def asks(self) -> bool:
        """Whether the server requests client certificates (modes MUTUAL and OPTIONAL_MUTUAL). These certificates are
        issued by other CAs than the mesh's own."""
        return self.mode in (ServerTlsMode.MUTUAL, ServerTlsMode.OPTIONAL_MUTUAL)


class GatewayServer(msgspec.Struct, frozen=True):
    port: ServicePort
    hosts: tuple[str, ...]  # HOST, or NAMESPACE/HOST, which allows only VirtualServices of that namespace
    name: str = ""
    bind: str = ""
    tls: ServerTls | None = None

    @property
    def encrypted(self) -> bool:
        return self.port.protocol in (Protocol.HTTPS, Protocol.TLS)

    @property
    def is_http(self) -> bool:
        """Whether the server routes single HTTP requests (and not connections)."""
        if self.port.protocol is Protocol.HTTPS:
            return self.tls is not None and self.tls.terminates
        return self.port.protocol.is_http

    @property
    def mesh_only(self) -> bool:
        """Whether the server accepts only clients with a certificate of the mesh."""
        return self.tls is not None and self.tls.mode is ServerTlsMode.ISTIO_MUTUAL

    @property
    def redirects(self) -> bool:
        return self.tls is not None and self.tls.https_redirect and not self.encrypted


class Gateway(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    servers: tuple[GatewayServer, ...]
    selector: Labels = ()  # labels of the proxies' workloads, in any namespace
    within: str = ""  # only in this namespace; "": any
    # For TLS to backends. A reference without a name stands for a certificate that may not be used.
    client_certificate: CredentialRef | None = None
    created: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> str:
        """The NAMESPACE/NAME by which VirtualServices refer to the Gateway."""
        return f"{self.namespace}/{self.name}"
