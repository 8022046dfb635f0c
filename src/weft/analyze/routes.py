"""VirtualServices for hosts that nobody has, and for gateways that are not there or that nothing serves yet. Where
their routes lead is looked at by whoever sees them: `translate/findings.py`."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.warning import meant_host, warning
from weft.api.syntax import is_address
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.virtual_service import VirtualService


def of_routes(facts: Facts) -> Iterator[Problem]:
    for routing in facts.virtual_services:
        if "mesh" in routing.gateways:
            yield from _of_hosts(routing, facts)
        yield from _of_gateways(routing, facts)


def _of_hosts(routing: VirtualService, facts: Facts) -> Iterator[Problem]:
    for index, host in enumerate(routing.hosts):
        if facts.services_of(host) or is_address(host):
            continue
        domain = facts.settings.domain
        outside = not host.endswith(f".{domain}")
        what = (
            f"no Service or ServiceEntry has the host {host}: its routes are met only by callers that resolve it anyway"
        )
        hint = meant_host(host, facts.by_host, domain)
        if not hint:
            hint = "if it is a name outside the mesh, add a ServiceEntry for it" if outside else "add the Service"
        yield warning(routing.origin, f"spec.hosts[{index}]", what, hint)


def _of_gateways(routing: VirtualService, facts: Facts) -> Iterator[Problem]:
    missing = False
    for index, name in enumerate(routing.gateways):
        if name != "mesh" and name not in facts.gateways:
            missing = True
            what = f"the gateway {name} does not exist"
            guess = did_you_mean(name, {*facts.gateways, "mesh"})
            yield warning(routing.origin, f"spec.gateways[{index}]", what, guess or "`mesh` stands for all sidecars")
    if routing.hosts and "mesh" not in routing.gateways and not missing:
        what = "these routes are for gateways only, and this version of weft runs no gateways: nothing uses them"
        yield warning(routing.origin, "spec.gateways", what, "add `mesh` to `gateways` for the calls between workloads")
