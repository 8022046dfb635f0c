"""Finds the virtual hosts that may have caused the rejection of a route configuration. A route configuration contains
the virtual hosts of many services, and Envoy rejects all of it for one wrong virtual host. Only virtual hosts that
differ from the last accepted configuration can be at fault."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyVirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.translate.contribution import VirtualHost


def put_back(hosts: Iterable[tuple[str, VirtualHost]], accepted: bytes) -> dict[str, VirtualHost | None]:
    """Compare the new virtual hosts of a rejected route configuration with the accepted route configuration. Return the
    hosts whose routes differ: host -> the virtual host in the accepted configuration, or None if that configuration
    does not contain the host. `hosts`: pairs of a host and its new virtual host. `accepted`: the serialized route
    configuration."""
    good = {host.name: host for host in RouteConfiguration.FromString(accepted).virtual_hosts}
    result: dict[str, VirtualHost | None] = {}
    for host, new in hosts:
        if not new.name:  # a placeholder without a service, which only makes the route configuration exist
            continue
        before = good.get(new.name)
        if before is None:
            result[host] = None
        elif _routes(before) != _routes(RouteConfiguration.FromString(new.fragment).virtual_hosts[0]):
            result[host] = _as_it_was(new, before)
    return result


def _routes(host: EnvoyVirtualHost) -> bytes:
    """Return the serialized routes of a virtual host, to compare two versions of it. The domains are left out: if a
    domain was removed because another virtual host has it too, the virtual host is different but cannot be the
    cause of a rejection."""
    routes: bytes = EnvoyVirtualHost(routes=host.routes).SerializeToString(deterministic=True)
    return routes


def _as_it_was(new: VirtualHost, before: EnvoyVirtualHost) -> VirtualHost:
    fragment: bytes = RouteConfiguration(virtual_hosts=[before]).SerializeToString(deterministic=True)
    domains = tuple(before.domains)
    return VirtualHost(new.name, fragment, new.sources, domains, frozenset(domain.lower() for domain in domains))
