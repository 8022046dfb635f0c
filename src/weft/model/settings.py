"""Mesh-wide settings: the fields of Istio's MeshConfig that weft reads."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

from weft.model.access_log import FileLog, LogProvider, Reporter
from weft.model.destination_rule import LocalitySetting
from weft.model.extension_provider import ExtensionProvider
from weft.model.names import Labels, Origin
from weft.model.on_demand import OnDemand
from weft.model.sidecar import OutboundPolicy
from weft.model.virtual_service import Retries

# Cipher suites between workloads for TLS 1.2. Each has forward secrecy and authenticated encryption, as all suites of
# TLS 1.3 do.
CIPHERS = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
)


class Namespace(msgspec.Struct, frozen=True):
    name: str
    labels: Labels = ()
    origin: Origin | None = None


class ServiceAccount(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    origin: Origin | None = None


class PathNormalization(StrEnum):
    """How a request's path is normalized before routes and policies match it; each value includes the ones before."""

    NONE = "NONE"
    BASE = "BASE"  # RFC 3986: dot segments, percent-encoded letters, backslashes
    MERGE_SLASHES = "MERGE_SLASHES"
    DECODE_AND_MERGE_SLASHES = "DECODE_AND_MERGE_SLASHES"


class Underscores(StrEnum):
    """How a gateway handles a header whose name has an underscore: applications may take it for a header with a
    dash."""

    ALLOW = "allow"  # as Istio does
    DROP = "drop"  # remove the header
    REJECT = "reject"  # reject the request, as Envoy's authors recommend for an edge


class Settings(msgspec.Struct, frozen=True, cache_hash=True):
    domain: str = "cluster.local"  # the suffix of service hosts
    trust_domain: str = "cluster.local"
    trust_domain_aliases: tuple[str, ...] = ()  # former trust domains, whose certificates are still accepted
    auto_mtls: bool = True  # callers use TLS wherever both sides have a proxy
    mtls_least: str = "TLSV1_2"  # the lowest TLS version between workloads
    mtls_ciphers: tuple[str, ...] = CIPHERS
    root_namespace: str = "istio-system"
    outbound_policy: OutboundPolicy = OutboundPolicy.ALLOW_ANY
    # How long Envoy waits for the first bytes on a port with an undeclared protocol before it forwards the connection
    # as TCP. Connections to a server that sends first are delayed by this time at each proxy, but never hang; declaring
    # the protocol removes the delay.
    detection_timeout: timedelta = timedelta(seconds=1)
    connect_timeout: timedelta = timedelta(seconds=10)
    retries: Retries | None = None  # for HTTP routes that set none; None: weft's default
    logs: tuple[FileLog, ...] = ()  # the access logs that proxies write; a Telemetry replaces them
    log_providers: tuple[LogProvider, ...] = (LogProvider("envoy", FileLog()),)
    default_log_providers: tuple[str, ...] = ()  # the names of `logs`, if they have names
    listener_logs: bool = True  # also log connections that were rejected before any request
    reporter: Reporter = Reporter.BOTH  # the side of traffic that proxies have these settings for
    service_export_to: tuple[str, ...] = ("*",)
    virtual_service_export_to: tuple[str, ...] = ("*",)
    destination_rule_export_to: tuple[str, ...] = ("*",)
    locality: LocalitySetting = LocalitySetting()  # for hosts whose DestinationRule has no locality setting
    on_demand: OnDemand = OnDemand.AUTO  # whether proxies get a service at their first call to it
    path_normalization: PathNormalization = PathNormalization.BASE
    trusted_proxies: int = 0  # in front of gateways: this many addresses at the end of x-forwarded-for are trusted
    underscores: Underscores = Underscores.ALLOW  # in header names, at gateways
    request_timeout: timedelta = timedelta(hours=1)  # for all bytes of a request to arrive at a gateway; 0: no limit
    extension_providers: tuple[ExtensionProvider, ...] = ()
    origin: Origin | None = None

    def logs_of(self, provider: str) -> tuple[FileLog, ...]:
        """The logs of a provider; empty if the provider is unknown or not supported. Names are case-insensitive."""
        match = next((each for each in self.log_providers if each.name.lower() == provider.lower()), None)
        return (match.log,) if match and match.log else ()
