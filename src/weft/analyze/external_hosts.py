"""Findings about ServiceEntries for hosts outside a mesh on one machine, because its pods cannot reach such hosts."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.model.service import Resolution, Service

_BY_NAME = (Resolution.DNS, Resolution.DNS_ROUND_ROBIN)


def of_external_hosts(facts: Facts) -> Iterator[Problem]:
    if not facts.confined:
        return
    seen = set()  # the hosts of one ServiceEntry are one object
    for service in facts.services:
        if service.origin is None or service.origin in seen or service.origin.key.kind != "ServiceEntry":
            continue
        outside = next(
            (each.address for each in service.static_endpoints if _is_outside(each.address, service, facts)), ""
        )
        if outside:
            seen.add(service.origin)
            what = (
                f"{outside} is outside the mesh, and pods on one machine have no way out: calls to {service.host} fail"
            )
            hint = "let pods reach hosts outside the mesh: weft up --egress"
            yield finding("WFT0322", service.origin, "spec.hosts", what, hint)


def _is_outside(address: str, service: Service, facts: Facts) -> bool:
    """Whether an endpoint of a service is surely outside the mesh. An address of a private network may be a pod's, and
    a name may be that of a service or of a pod."""
    try:
        return ip_address(address).is_global
    except ValueError:
        pass
    if service.resolution not in _BY_NAME or address.startswith("unix:"):
        return False
    name, domain = address.rstrip(".").lower(), facts.settings.domain
    if name == "localhost" or name.endswith((".localhost", f".svc.{domain}")):
        return False
    readings = (name, f"{name}.{service.namespace}.svc.{domain}", f"{name}.svc.{domain}", f"{name}.{domain}")
    return not any(
        other.origin != service.origin and other.host == reading
        for reading in readings
        for other in facts.by_host.get(reading, ())
    )
