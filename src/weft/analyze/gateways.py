"""Findings about Gateways: no proxy serves them, another Gateway has the same host and port for the same workloads,
certificates are missing or wrong, hosts have no routes. Also findings about published ports that no server uses."""

from __future__ import annotations

import time
from collections.abc import Iterator

from weft.analyze.credentials import meant_secret
from weft.analyze.facts import Facts
from weft.analyze.finding import finding, meant_labels, written
from weft.base.problem import Problem
from weft.mesh.gateway_api.attached import OWN_CLASS
from weft.mesh.gateways import age, spoken
from weft.model.credential import Credential
from weft.model.edge import AUTHORITIES, narrower
from weft.model.gateway import Gateway, GatewayServer, ServerTls, ServerTlsMode
from weft.model.gateway_api import GATEWAY_NAME
from weft.model.names import CredentialRef, Labels, selects

_ASKING = (ServerTlsMode.MUTUAL, ServerTlsMode.OPTIONAL_MUTUAL)
# Where a server listens: a workload as NAMESPACE/NAME (or the selector, if no workload has its labels), the port, and
# the address that it binds to.
_Place = tuple[str | Labels, int, str]


def of_gateways(facts: Facts) -> Iterator[Problem]:
    yield from _of_listeners(facts)
    yield from _of_publishing(facts)
    hosts: dict[tuple[_Place, str], Gateway] = {}
    speaking: dict[_Place, tuple[Gateway, GatewayServer]] = {}
    for gateway in sorted(facts.gateways.values(), key=age):
        yield from _of_selector(gateway, facts)
        yield from _of_hosts(gateway, facts)
        for index, server in enumerate(gateway.servers):
            yield from _of_certificate(gateway, index, facts)
            yield from _of_service_ports(gateway, index, facts)
            places = _listening_places(gateway, server, facts)
            taken = [
                each for each in places if spoken(speaking.setdefault(each, (gateway, server))[1]) != spoken(server)
            ]
            if taken:
                other, first = speaking[taken[0]]
                whose = f"Gateway {other.namespace}/{other.name}" if other is not gateway else "a server above"
                what = (
                    f"port {server.port.number}{_at(taken, places)} is {_named(server)} here, and {_named(first)} in "
                    f"{whose}, which takes precedence: this server is left out"
                )
                yield finding(
                    "WFT0703", gateway.origin, f"spec.servers[{index}].port", what, "use one port per protocol"
                )
            left = [each for each in places if spoken(speaking[each][1]) == spoken(server)]
            for place, host in enumerate(server.hosts if server.encrypted or not server.is_http else ()):
                name = host.rpartition("/")[2]  # plain HTTP servers are not checked: their routes are merged
                shared = [each for each in left if hosts.setdefault((each, name), gateway) is not gateway]
                if shared:
                    owner = hosts[(shared[0], name)]
                    what = (
                        f"Gateway {owner.namespace}/{owner.name} serves {name} at port {server.port.number} of "
                        f"{_whose(shared, left)} too and takes precedence"
                    )
                    field = f"spec.servers[{index}].hosts[{place}]"
                    yield finding("WFT0702", gateway.origin, field, what, "define each host and port in one Gateway")


def _listening_places(gateway: Gateway, server: GatewayServer, facts: Facts) -> list[_Place]:
    """The places at which a server of a Gateway listens. Each is a workload (NAMESPACE/NAME) that the Gateway selects,
    the port, and the address to which the server binds. Workloads, not selectors, identify the places, since different
    selectors may select the same workloads. If the Gateway selects no workload, its selector stands for the
    workload."""
    selected: list[str | Labels] = sorted(
        f"{place}/{each.name}" for place in facts.runners for each in facts.selected(place, gateway.selector)
    )
    return [(each, server.port.number, server.bind) for each in selected or (gateway.selector,)]


def _at(some: list[_Place], every: list[_Place]) -> str:
    return "" if len(some) == len(every) else f" of {_whose(some, every)}"


def _whose(some: list[_Place], every: list[_Place]) -> str:
    if len(some) == len(every):
        return "the same workloads"
    return ", ".join(str(workload) for workload, _, _ in some[:3]) + (" and others" if len(some) > 3 else "")


def _of_listeners(facts: Facts) -> Iterator[Problem]:
    """Findings about the certificates of Gateway API listeners. A missing certificate is not reported here: a
    condition of the listener reports it."""
    for derived in facts.standard:
        numbers = {each.name: index for index, each in enumerate(derived.gateway.listeners if derived.gateway else ())}
        for gateway in derived.gateways:
            tls = gateway.servers[0].tls
            field = f"spec.listeners[{numbers.get(gateway.servers[0].name, 0)}]"
            for reference in tls.credentials if tls is not None else ():
                credential = facts.credentials.get(reference)
                if credential is not None and credential.chain:
                    yield from _of_shown(gateway, 0, field, credential)


def _of_publishing(facts: Facts) -> Iterator[Problem]:
    """Findings about gateways that publish ports: ports that are served but not published, and published but not
    served. A gateway that publishes no port is called only from within the mesh, so it is skipped."""
    for namespace, runners in facts.runners.items():
        for runner in runners:
            if not runner.publish:
                continue
            origin = runner.instance.origin
            served = {each.listens for each in facts.servers(namespace, runner)}
            for number in sorted(served - {each.port for each in runner.publish}):
                what = f"port {number} is served here and not published: it cannot be called from this machine"
                hint = f"add {{port: {number}, hostPort: …}} to `publish`"
                yield finding("WFT0709", origin, "spec.gateway.publish", what, hint)
            for index, each in enumerate(runner.publish):
                if each.port not in served:
                    what = f"port {each.port} is published, and no Gateway serves it: connections are closed at once"
                    hint = (
                        "add a server for the port to a Gateway whose selector matches the Workload's labels, or a "
                        "listener "
                        f"to a Gateway of the class `{OWN_CLASS}` that the label {GATEWAY_NAME} names"
                    )
                    yield finding("WFT0710", origin, f"spec.gateway.publish[{index}]", what, hint, line=each.line)


def _of_selector(gateway: Gateway, facts: Facts) -> Iterator[Problem]:
    """Findings about a Gateway whose selector matches no workload, or only workloads that are no gateways. The
    selector of a Gateway applies to workloads of all namespaces."""
    if not facts.runs or not gateway.selector:
        return
    if not any(facts.selected(place, gateway.selector) for place in facts.runners):
        what = f"no workload has the labels {written(gateway.selector)}: no proxy serves this Gateway"
        labels = (runner.labels for held in facts.runners.values() for runner in held)
        yield finding("WFT0701", gateway.origin, "spec.selector", what, meant_labels(gateway.selector, labels))
    elif not any(each.instance.gateway for place in facts.runners for each in facts.selected(place, gateway.selector)):
        what = (
            f"the workloads with the labels {written(gateway.selector)} are no gateways: no proxy serves this Gateway"
        )
        yield finding("WFT0708", gateway.origin, "spec.selector", what, "add `gateway: {}` to the Workload")


def _of_service_ports(gateway: Gateway, index: int, facts: Facts) -> Iterator[Problem]:
    """Finding if no Service in front of the gateway's Kubernetes pods has the port of the server `index` of a Gateway.
    Gateways of the local engine publish ports instead of having a Service."""
    server = gateway.servers[index]
    pods = [
        (place, each)
        for place in facts.runners
        for each in facts.selected(place, gateway.selector)
        if each.instance.gateway and each.instance.by_slice
    ]
    services = [
        service
        for service in facts.services
        if service.selector
        and any(place == service.namespace and selects(service.selector, each.labels) for place, each in pods)
    ]
    numbers = sorted({port.number for service in services for port in service.ports})
    targets = {each.instance.port_for(port) for service in services for port in service.ports for _, each in pods}
    if services and server.port.number not in {*numbers, *targets}:
        first = f"{services[0].namespace}/{services[0].name}"
        what = f"no Service of the gateway has port {server.port.number}: the port cannot be called through {first}"
        hint = f"add the port to the Service; it has {', '.join(map(str, numbers[:12]))}"
        yield finding("WFT0711", gateway.origin, f"spec.servers[{index}].port", what, hint)


def _of_hosts(gateway: Gateway, facts: Facts) -> Iterator[Problem]:
    bound = [each for each in facts.virtual_services if gateway.key in each.gateways]
    for index, server in enumerate(gateway.servers):
        for place, written_host in enumerate(server.hosts if not server.redirects else ()):
            namespace, slash, host = written_host.rpartition("/")
            owner = "*" if not slash else gateway.namespace if namespace == "." else namespace
            if not any(
                owner in ("*", each.namespace) and any(narrower(host, at) for at in each.hosts) for each in bound
            ):
                what = f"no VirtualService has routes for {host} at this Gateway"
                hint = f"add {gateway.key} to the `gateways` of a VirtualService"
                yield finding("WFT0707", gateway.origin, f"spec.servers[{index}].hosts[{place}]", what, hint)


def _of_certificate(gateway: Gateway, index: int, facts: Facts) -> Iterator[Problem]:
    """Findings about the certificates of the server `index` of a Gateway. Secrets are read from the namespace of the
    gateway's pods."""
    tls = gateway.servers[index].tls
    places = [place for place in facts.runners if facts.selected(place, gateway.selector)]
    for reference in tls.credentials if tls is not None else ():
        for place in (reference.namespace,) if reference.namespace else places:
            credential = facts.credentials.get(CredentialRef(reference.name, place))
            field = f"spec.servers[{index}].tls.credentialName{'s' if len(tls.credentials) > 1 else ''}" if tls else ""
            if credential is None:
                what = (
                    f"the Secret {place}/{reference.name} does not exist or cannot be parsed: these hosts are not "
                    "served"
                )
                hint = meant_secret(reference.name, place, facts)
                yield finding("WFT0704", gateway.origin, field, what, hint)
            elif not credential.chain:
                what = f"the Secret {place}/{reference.name} has no certificate: these hosts are not served"
                yield finding("WFT0704", gateway.origin, field, what, "the Secret needs `tls.crt` and `tls.key`")
            else:
                yield from _of_shown(gateway, index, field, credential)
    if tls is not None and tls.mode in _ASKING and not tls.authorities:
        yield from _of_authorities(gateway, index, tls, places, facts)


def _of_shown(gateway: Gateway, index: int, field: str, held: Credential) -> Iterator[Problem]:
    if 0 < held.expires < time.time():
        day = time.strftime("%Y-%m-%d", time.gmtime(held.expires))
        what = f"the certificate of the Secret {held.namespace}/{held.name} expired on {day}"
        yield finding("WFT0705", gateway.origin, field, what)
    for written_host in gateway.servers[index].hosts:
        host = written_host.rpartition("/")[2].lower()
        if host != "*" and not any(_names(name, host) for name in held.hosts):
            what = f"the certificate of the Secret {held.namespace}/{held.name} is not for {host}"
            listed = ", ".join(held.hosts[:5])
            yield finding("WFT0706", gateway.origin, field, what, f"the certificate is for {listed or 'no host'}")


def _of_authorities(gateway: Gateway, index: int, tls: ServerTls, places: list[str], facts: Facts) -> Iterator[Problem]:
    for place in places:
        named = [tls.authorities_credential] if tls.authorities_credential else []
        for each in tls.credentials[:1] if not named else ():
            named += (CredentialRef(f"{each.name}{AUTHORITIES}", each.namespace), each)
        found = [facts.credentials.get(CredentialRef(each.name, each.namespace or place)) for each in named]
        if any(each is not None for each in found) and not any(each is not None and each.roots for each in found):
            name = f"{named[-1].namespace or place}/{named[-1].name}"
            what = f"the Secret {name} has no CA certificate: these hosts are not served"
            yield finding("WFT0704", gateway.origin, f"spec.servers[{index}].tls", what, "the Secret needs `ca.crt`")


def _names(name: str, host: str) -> bool:
    """Whether a name in a certificate covers a host, or all hosts of a wildcard. A wildcard in a certificate stands
    for one DNS label."""
    return name == host or (name.startswith("*.") and "." in host and host.partition(".")[2] == name[2:])


def _named(server: GatewayServer) -> str:
    return server.port.protocol.value.upper()
