"""Probes that kubelet sends to the proxy instead of the application, because in STRICT mode the application's own
port accepts only callers of the mesh. The injector writes these probes into the pod; the proxy's own
configuration serves them."""

from __future__ import annotations

import msgspec


class HttpCheck(msgspec.Struct, frozen=True, kw_only=True, tag="http"):
    port: int
    path: str = "/"  # with the query, if there is one
    tls: bool = False
    host: str = ""  # sent as Host; empty: what kubelet sends


class TcpCheck(msgspec.Struct, frozen=True, kw_only=True, tag="tcp"):
    port: int


class GrpcCheck(msgspec.Struct, frozen=True, kw_only=True, tag="grpc"):
    port: int
    service: str = ""


class AppProbe(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # the path that kubelet requests from the proxy
    check: HttpCheck | TcpCheck | GrpcCheck
    timeout: int = 1  # seconds
    period: int = 10  # seconds
