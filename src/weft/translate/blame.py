"""Finds the virtual host that caused the rejection of a route configuration. The configuration holds the virtual hosts
of all services, and Envoy rejects all of it for one of them: one that is not in the last accepted version."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyVirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.translate.contribution import VirtualHost


def put_back(hosts: Iterable[tuple[str, VirtualHost]], accepted: bytes) -> dict[str, VirtualHost | None]:
    """For each host whose routes differ from the accepted configuration: its accepted version, if there is one."""
    good = {host.name: host for host in RouteConfiguration.FromString(accepted).virtual_hosts}
    result: dict[str, VirtualHost | None] = {}
    for host, new in hosts:
        if not new.name:  # of no service: it only keeps the configuration in existence
            continue
        before = good.get(new.name)
        if before is None:
            result[host] = None
        elif _routes(before) != _routes(RouteConfiguration.FromString(new.fragment).virtual_hosts[0]):
            result[host] = _as_it_was(new, before)
    return result


def _routes(host: EnvoyVirtualHost) -> bytes:
    """The host without its domains: Envoy does not reject a host for losing a domain to another host."""
    routes: bytes = EnvoyVirtualHost(routes=host.routes).SerializeToString(deterministic=True)
    return routes


def _as_it_was(new: VirtualHost, before: EnvoyVirtualHost) -> VirtualHost:
    fragment: bytes = RouteConfiguration(virtual_hosts=[before]).SerializeToString(deterministic=True)
    domains = tuple(before.domains)
    return VirtualHost(new.name, fragment, new.sources, domains, frozenset(domain.lower() for domain in domains))
