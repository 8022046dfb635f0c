"""Endpoints as table rows: those that Envoy uses, with their health (/clusters), or those that Envoy was sent (a
dump)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from weft.envoy.binary import EnvoyError
from weft.envoy.dump import ENDPOINTS, WHY, Dump, DumpTable, Told, at, items, number, text
from weft.envoy.dump_clusters import parse_name

COLUMNS = ("ENDPOINT", "STATUS", "OUTLIER CHECK", "CLUSTER")
_TOLD = (("dynamic_endpoint_configs", "endpoint_config"), ("static_endpoint_configs", "endpoint_config"))
TOLD_COLUMNS = ("NAME", "STATUS", "LOCALITY", "CLUSTER")


class EndpointFilter(msgspec.Struct, frozen=True):
    """Selects endpoints whose address, port, cluster and health (`status`) equal those of the filter; case is ignored.
    An empty field or 0 selects all."""

    address: str = ""
    port: int = 0
    cluster: str = ""
    status: str = ""

    def takes(self, address: str, port: int, cluster: str, status: str) -> bool:
        return (
            self.address.lower() in ("", address.lower())
            and self.port in (0, port)
            and self.cluster.lower() in ("", cluster.lower())
            and self.status.lower() in ("", status.lower())
        )


class _Endpoint(msgspec.Struct, frozen=True, order=True):
    address: str
    port: int
    cluster: str
    status: str
    failed: bool

    @property
    def shown(self) -> str:
        return f"{self.address}:{self.port}" if self.port else self.address


def clusters(dump: Dump, wanted: EndpointFilter | None = None) -> list[dict[str, Any]]:
    """Return the clusters of /clusters that have an endpoint which `wanted` selects, as complete messages."""
    statuses = at(dump.document, "cluster_statuses")
    if not isinstance(statuses, list):
        hint = "endpoints are in: curl -s 'localhost:15000/clusters?format=json', or /config_dump?include_eds=true"
        raise EnvoyError("the dump contains no endpoints", hint)
    return [each for each in items(dump.document, "cluster_statuses") if _endpoints(each, wanted or EndpointFilter())]


def table(
    statuses: list[dict[str, Any]], wanted: EndpointFilter | None = None, *, why: Told | None = None
) -> DumpTable:
    """Return the table of the endpoints in use that `wanted` selects. `statuses`: the clusters of /clusters. `why`:
    returns the object that created an endpoint, which becomes the last column; None: no such column."""
    endpoints = sorted(each for cluster in statuses for each in _endpoints(cluster, wanted or EndpointFilter()))
    rows = [
        (
            *(each.shown, each.status, "FAILED" if each.failed else "OK", each.cluster),
            *((why(each.cluster, each.shown),) if why else ()),
        )
        for each in endpoints
    ]
    return DumpTable((*COLUMNS, *(WHY if why else ())), tuple(rows))


def is_told(dump: Dump) -> bool:
    """Return whether the dump contains the endpoints that Envoy was sent (EDS), and not their health (/clusters)."""
    return not isinstance(at(dump.document, "cluster_statuses"), list) and bool(dump.sections(ENDPOINTS))


def assignments(dump: Dump, wanted: EndpointFilter | None = None) -> list[dict[str, Any]]:
    """Return the ClusterLoadAssignments that have an endpoint which `wanted` selects, as complete messages."""
    messages = dump.messages(ENDPOINTS, *_TOLD)
    ordered = sorted(messages, key=lambda each: parse_name(text(each, "cluster_name")).order)
    return [each for each in ordered if any(_told_endpoints(each, wanted or EndpointFilter()))]


def told(dump: Dump, wanted: EndpointFilter | None = None, *, why: Told | None = None) -> DumpTable:
    """Return the table of the endpoints that the control plane has sent and that `wanted` selects (None: all), with
    their localities. `why`: as for `table`."""
    wanted = wanted or EndpointFilter()
    rows = []
    for assignment in assignments(dump, wanted):
        cluster = text(assignment, "cluster_name")
        for shown, status, locality in _told_endpoints(assignment, wanted):
            row = (f"endpoint/{shown}", status, locality, cluster)
            rows.append((*row, *((why(cluster, shown),) if why else ())))
    return DumpTable((*TOLD_COLUMNS, *(WHY if why else ())), tuple(rows))


def _told_endpoints(assignment: dict[str, Any], wanted: EndpointFilter) -> Iterator[tuple[str, str, str]]:
    """Yield (address, status, locality) of each endpoint of the ClusterLoadAssignment that `wanted` selects."""
    cluster = text(assignment, "cluster_name")
    for group in items(assignment, "endpoints"):
        for each in items(group, "lb_endpoints"):
            status = text(each, "health_status") or "UNKNOWN"
            port = number(each, "endpoint", "address", "socket_address", "port_value")
            if any(wanted.takes(address, port, cluster, status) for address in _told_hosts(each)):
                yield ",".join(_told_addresses(each)), status, _locality(at(group, "locality"))


def _endpoints(cluster: dict[str, Any], wanted: EndpointFilter) -> list[_Endpoint]:
    name = text(cluster, "name")
    endpoints = []
    for host in items(cluster, "host_statuses"):
        health = at(host, "health_status")
        endpoints.append(
            _Endpoint(
                address=_host(at(host, "address")),
                port=number(host, "address", "socket_address", "port_value"),
                cluster=name,
                status=text(health, "eds_health_status") or "UNKNOWN",
                failed=at(health, "failed_outlier_check") is True,
            )
        )
    return [each for each in endpoints if wanted.takes(each.address, each.port, each.cluster, each.status)]


def _host(address: Any) -> str:
    if host := text(address, "socket_address", "address"):
        return host
    if path := text(address, "pipe", "path"):
        return f"unix://{path}"
    if listener := text(address, "envoy_internal_address", "server_listener_name"):
        return f"envoy://{listener}/{text(address, 'envoy_internal_address', 'endpoint_id')}"
    return "unknown"


def _told_parts(endpoint: dict[str, Any]) -> list[Any]:
    more = items(endpoint, "endpoint", "additional_addresses")
    return [at(endpoint, "endpoint", "address"), *(at(each, "address") for each in more)]


def _told_hosts(endpoint: dict[str, Any]) -> list[str]:
    return [_host(address) for address in _told_parts(endpoint)]


def _told_addresses(endpoint: dict[str, Any]) -> list[str]:
    shown = []
    for address in _told_parts(endpoint):
        port = at(address, "socket_address", "port_value")
        shown.append(_host(address).removeprefix("unix://") + (f":{port}" if port is not None else ""))
    return shown


def _locality(locality: Any) -> str:
    region, zone, area = (text(locality, part) for part in ("region", "zone", "sub_zone"))
    return "/".join(part for part in (region, zone, area) if part)
