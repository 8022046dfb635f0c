"""Findings about Sidecars that import hosts, namespaces or ports that do not exist, select no workload, or conflict
with another Sidecar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from weft.analyze.facts import Facts
from weft.analyze.finding import ahead, finding, meant_host, meant_labels, written
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.mesh.claims import strength
from weft.model.names import full_host, host_covers
from weft.model.peer_authentication import TlsMode
from weft.model.scope import scope_of
from weft.model.sidecar import Sidecar
from weft.model.virtual_service import Destination


def of_sidecars(facts: Facts) -> Iterator[Problem]:
    routed: dict[str, set[str]] = defaultdict(set)
    for routing in facts.virtual_services:
        for host in routing.hosts:
            routed[host].add(routing.namespace)
    yield from _of_conflicts(facts)
    for sidecar in facts.sidecars:
        for number, listener in enumerate(sidecar.egress):
            for index, entry in enumerate(listener.hosts):
                code, what, hint = _against(entry, sidecar, facts, routed)
                if code:
                    yield finding(code, sidecar.origin, f"spec.egress[{number}].hosts[{index}]", what, hint)
            yield from _of_port(sidecar, number, facts)
        yield from _of_ingress_tls(sidecar, facts)
        if isinstance(sidecar.outbound_policy, Destination):
            yield from _of_proxy(sidecar, sidecar.outbound_policy, facts)
        if sidecar.selector and facts.runs and not facts.selected(sidecar.namespace, sidecar.selector):
            labels = (runner.labels for runner in facts.runners.get(sidecar.namespace, ()))
            what = (
                f"no workload of namespace {sidecar.namespace} has the labels {written(sidecar.selector)}: "
                "the Sidecar has no effect"
            )
            yield finding(
                "WFT0403", sidecar.origin, "spec.workloadSelector", what, meant_labels(sidecar.selector, labels)
            )


def _of_port(sidecar: Sidecar, number: int, facts: Facts) -> Iterator[Problem]:
    listener = sidecar.egress[number]
    if listener.port is None:
        return
    imports = scope_of(sidecar.namespace, Sidecar("", sidecar.namespace, egress=(listener,))).imports or ()
    services = [each for each in facts.services if any(one.covers(each.namespace, each.host) for one in imports)]
    known = sorted({port.number for service in services for port in service.ports})
    if not services or listener.port.number in known:
        return
    if listener.bind and any(len(service.ports) == 1 for service in services):
        return  # such a listener leads to the only port of a service
    what = f"none of the imported hosts has port {listener.port.number}: the listener imports nothing"
    field = f"spec.egress[{number}].port.number"
    yield finding("WFT0408", sidecar.origin, field, what, f"the hosts have {', '.join(map(str, known))}")


def _of_ingress_tls(sidecar: Sidecar, facts: Facts) -> Iterator[Problem]:
    """Findings about `ingress[].tls` that no proxy uses, because mutual TLS is not disabled on the port."""
    runners = facts.selected(sidecar.namespace, sidecar.selector or ())
    for index, listener in enumerate(sidecar.ingress):
        modes = {facts.modes(sidecar.namespace, each.labels).at(listener.port.number) for each in runners}
        if listener.tls is not None and modes and TlsMode.DISABLE not in modes:
            number = listener.port.number
            what = f"`tls` of port {number} is not used: the port's mutual TLS mode is {min(modes)}, not DISABLE"
            hint = "a PeerAuthentication for the workload with `mtls: {mode: DISABLE}` enables it"
            yield finding("WFT0409", sidecar.origin, f"spec.ingress[{index}].tls", what, hint)


def _of_proxy(sidecar: Sidecar, proxy: Destination, facts: Facts) -> Iterator[Problem]:
    services = facts.services_of(proxy.host)
    field, lost = "spec.outboundTrafficPolicy.egressProxy", "calls to hosts outside the mesh fail"
    if not services:
        hint = meant_host(proxy.host, facts.by_host, facts.settings.domain)
        yield finding(
            "WFT0407", sidecar.origin, field, f"no Service or ServiceEntry has the host {proxy.host}: {lost}", hint
        )
    elif proxy.port not in {port.number for service in services for port in service.ports}:
        what = f"{proxy.host} has no port {proxy.port}: {lost}"
        known = sorted({port.number for service in services for port in service.ports})
        yield finding("WFT0407", sidecar.origin, field, what, f"it has {', '.join(map(str, known)) or 'none'}")


def _of_conflicts(facts: Facts) -> Iterator[Problem]:
    whole: dict[str, Sidecar] = {}
    ruled: dict[tuple[str, str], Sidecar] = {}
    for sidecar in sorted(facts.sidecars, key=strength):
        if not sidecar.selector:
            first = whole.setdefault(sidecar.namespace, sidecar)
            if first is not sidecar:
                why = ahead(first, sidecar)
                what = f"Sidecar {first.name} is for the whole namespace too and {why}: this Sidecar is not used"
                yield finding(
                    "WFT0404",
                    sidecar.origin,
                    "spec",
                    what,
                    f"keep only one of {first.name} and {sidecar.name}, or give one of them a `workloadSelector`",
                )
            continue
        for runner in facts.selected(sidecar.namespace, sidecar.selector):
            first = ruled.setdefault((sidecar.namespace, runner.name), sidecar)
            if first is not sidecar:
                why = ahead(first, sidecar)
                what = f"Sidecar {first.name} selects {runner.name} too and {why}: this Sidecar is not used for it"
                yield finding("WFT0405", sidecar.origin, "spec.workloadSelector", what, "use one Sidecar per workload")
                break


def _routing(host: str, routed: Mapping[str, set[str]]) -> set[str]:
    """The namespaces of VirtualServices for a host, or for the hosts that a wildcard covers. `routed`: for each host,
    the namespaces of its VirtualServices."""
    if not host.startswith("*"):
        return routed.get(host, set())
    return {place for name, places in routed.items() if host_covers(host, name) for place in places}


def _against(entry: str, sidecar: Sidecar, facts: Facts, routed: Mapping[str, set[str]]) -> tuple[str, str, str]:
    """The code, message and hint of the finding about `entry`, an egress host of the Sidecar; empty strings if there is
    no finding. `routed`: for each host, the namespaces of its VirtualServices."""
    owner, slash, host = entry.partition("/")
    if not slash or owner == "~":
        return "", "", ""
    namespace = sidecar.namespace if owner == "." else owner
    if host == "*":
        # A namespace without services is fine, an unknown namespace is not.
        if namespace == "*" or namespace in facts.namespaces:
            return "", "", ""
        what = f"there is no namespace {namespace}: `{entry}` imports nothing"
        return "WFT0402", what, did_you_mean(namespace, facts.namespaces)
    owners = {each.namespace for each in facts.services_of(host)} | _routing(host, routed)
    if owners and (namespace == "*" or namespace in owners):
        return "", "", ""
    what = f"`{entry}` imports nothing: there is no such host"
    if owners:
        owner = min(owners)
        return "WFT0401", f"{what} in namespace {namespace}", f"the host is in namespace {owner}: write {owner}/{host}"
    short = full_host(host, sidecar.namespace if namespace == "*" else namespace, facts.settings.domain)
    if short in facts.by_host and short != host:
        return "WFT0401", what, f"a Sidecar needs fully qualified names: write {owner}/{short}"
    return "WFT0401", what, meant_host(host, facts.by_host, facts.settings.domain)
