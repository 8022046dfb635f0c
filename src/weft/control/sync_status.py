"""Sync status of proxies in the format of Istio's `/debug/syncz`: the control plane writes it, the CLI reads it. weft
adds two fields: since which push, and for how long, a proxy is stale. The CLI imports this module, so this module
imports almost nothing."""

from __future__ import annotations

import msgspec

SYNCED, STALE, NOT_SENT = "SYNCED", "STALE", "NOT SENT"

_PREFIX = "type.googleapis.com/"
# Istio's abbreviations of resource types, in the order of its table.
TYPES = {
    "CDS": _PREFIX + "envoy.config.cluster.v3.Cluster",
    "LDS": _PREFIX + "envoy.config.listener.v3.Listener",
    "EDS": _PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "RDS": _PREFIX + "envoy.config.route.v3.RouteConfiguration",
    "ECDS": _PREFIX + "envoy.config.core.v3.TypedExtensionConfig",
}
SHORT = {url: short for short, url in TYPES.items()}


class TypeSync(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sync state of one resource type at one proxy. `state`: SYNCED, STALE or NOT SENT. `sent`: the push number of the
    last response, `sent_time`: its time (RFC 3339). `acked`: the push number up to which all changes were acknowledged.
    `last_error`: the last NACK, until its cause is removed. `stale_since_push`, `stale_seconds`: if the type is STALE,
    since which push and for how long; else 0 and None. Push numbers are those of the replica that the proxy is
    connected to."""

    state: str  # SYNCED, STALE or NOT SENT
    sent: str = ""  # push number of the last response of this type
    acked: str = ""  # push number up to which all changes were acknowledged
    sent_time: str = msgspec.field(default="", name="sentTime")  # RFC 3339
    last_error: str = msgspec.field(default="", name="lastError")  # last NACK, until its cause is removed
    stale_since_push: int = 0
    stale_seconds: float | None = None  # set if the type is stale


class ProxySync(msgspec.Struct, frozen=True, omit_defaults=True):
    proxy: str  # POD.NAMESPACE
    proxy_type: str = ""
    cluster_id: str = ""
    istio_version: str = ""
    cluster_sent: str = ""
    cluster_acked: str = ""
    listener_sent: str = ""
    listener_acked: str = ""
    route_sent: str = ""
    route_acked: str = ""
    endpoint_sent: str = ""
    endpoint_acked: str = ""
    extensionconfig_sent: str = ""
    extensionconfig_acked: str = ""
    resources: dict[str, TypeSync] = {}  # type URL → state, for types that the proxy subscribes to
    namespace: str = ""
    istiod: str = ""  # the replica that the proxy is connected to
    node: str = ""  # the node whose agent serves the proxy; "" for a proxy with its own stream
    connected_at: str = ""


def rows(proxies: list[ProxySync]) -> list[tuple[str, ...]]:
    """Return the table that istioctl prints, with its header."""
    header = ("NAME", "CLUSTER", *TYPES, "ISTIOD", "VERSION")
    table = [
        (
            each.proxy,
            each.cluster_id,
            *(cell(each.resources.get(url)) for url in SHORT),
            each.istiod,
            each.istio_version,
        )
        for each in sorted(proxies, key=lambda each: (each.proxy, each.istiod))
    ]
    return [header, *table]


def cell(sync: TypeSync | None) -> str:
    if sync is None:
        return "IGNORED"  # Istio's word for a type that the proxy does not subscribe to
    if sync.state == STALE:
        return f"{STALE} ({duration(sync.stale_seconds or 0.0)}, push {sync.stale_since_push})"
    return "ERROR" if sync.last_error else sync.state


def duration(seconds: float) -> str:
    """Return a duration roughly as kubectl prints it: 12s, 4m, 3h, 2d."""
    whole = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
