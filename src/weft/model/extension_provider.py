"""Services that the mesh's proxies themselves call, from MeshConfig's `extensionProviders`. Policies and logs refer
to them by name. Supported so far: external authorizers for CUSTOM policies."""

from __future__ import annotations

from datetime import timedelta

import msgspec


class CheckedBody(msgspec.Struct, frozen=True):
    """How much of a request's body is sent to an authorizer. `most_bytes`: at most this many bytes. `allow_partial`:
    whether a longer body is cut off; if not, a request with a longer body is rejected. `as_bytes`: for gRPC only,
    whether the body is sent as bytes instead of UTF-8 text."""

    most_bytes: int
    allow_partial: bool = False
    as_bytes: bool = False


class Authorizer(msgspec.Struct, frozen=True, kw_only=True):
    """An external authorizer, which decides for CUSTOM policies (Envoy's ext_authz). `name`: its name in MeshConfig.
    `host`, `port`: those of its service; `namespace`: that of the service, needed only if several services have the
    host. `grpc`: whether it is called over gRPC; if not, over HTTP. `fail_open`: whether requests are allowed while it
    is unavailable; if not, they get the status `status_on_error` (0: 403). `body`: how much of a request's body it
    gets; None: nothing. The fields from `path_prefix` on are for HTTP only; header names in them may begin or end with
    `*`."""

    name: str
    host: str  # of a service
    namespace: str = ""  # of the service, where several have the host
    port: int
    grpc: bool = False  # else HTTP
    timeout: timedelta = timedelta(seconds=5)
    fail_open: bool = False  # allow requests while the authorizer is unavailable
    status_on_error: int = 0  # response status while the authorizer is unavailable; 0: 403
    clear_route_cache: bool = False
    body: CheckedBody | None = None
    # The fields below are for HTTP only; header names may begin or end with `*`.
    path_prefix: str = ""
    request_headers: tuple[str, ...] = ()
    additional_headers: tuple[tuple[str, str], ...] = ()
    upstream_headers_on_allow: tuple[str, ...] = ()
    downstream_headers_on_allow: tuple[str, ...] = ()
    downstream_headers_on_deny: tuple[str, ...] = ()


ExtensionProvider = Authorizer
