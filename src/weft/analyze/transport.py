"""Findings about callers and workloads that disagree about TLS: rules that send plaintext to workloads that reject
it or TLS to workloads that do not accept it, PeerAuthentications without effect, servers whose certificate is not
verified."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts, Runner
from weft.analyze.finding import ahead, finding
from weft.analyze.ports import Ports
from weft.analyze.unmatched_selectors import selects_nothing
from weft.base.problem import Problem
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, Subset, effective
from weft.model.gateway import ServerTlsMode
from weft.model.names import selects
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Protocol, Service, ServicePort

_WELL = ("", "", "")


def of_transport(facts: Facts) -> Iterator[Problem]:
    for rule in facts.rules:
        yield from _of_rule(rule, facts)
    for service in facts.services:
        yield from _of_headless(service, facts)
    ports = Ports(facts)
    levels: dict[tuple[str, object], PeerAuthentication] = {}
    for policy in (each for policies in facts.peer_authentications.values() for each in policies):
        yield from _of_policy(policy, facts, ports)
        first = levels.setdefault((policy.namespace, policy.selector), policy)
        if first is not policy:
            whose = f"PeerAuthentication {first.namespace}/{first.name} {ahead(first, policy)}"
            what = f"{whose} and selects the same workloads: this PeerAuthentication has no effect"
            yield finding("WFT0501", policy.origin, "spec", what, f"keep only one of {first.name} and {policy.name}")


def _of_rule(rule: DestinationRule, facts: Facts) -> Iterator[Problem]:
    reported: set[str] = set()
    for service in facts.services_of(rule.host):
        for port in service.ports:
            for subset in (None, *rule.subsets):
                tls = effective(rule, port.number, subset).tls
                code, what, hint = _against(tls, service, port, subset, facts) if tls else _WELL
                if code and what not in reported:
                    reported.add(what)
                    yield finding(code, rule.origin, "spec", what, hint)


def _against(
    tls: ClientTls, service: Service, port: ServicePort, subset: Subset | None, facts: Facts
) -> tuple[str, str, str]:
    """The code, message and hint of the finding about the TLS settings of a DestinationRule for a port and subset of a
    service; empty strings if there is no finding."""
    at = f"port {port.number} of {service.host}"
    if tls.mode in (ClientTlsMode.SIMPLE, ClientTlsMode.MUTUAL):
        if not tls.verify:
            what = f"`insecureSkipVerify`: the certificate of {service.host} is not verified"
            return "WFT0205", what, "set `caCertificates` instead"
        names = tls.subject_alt_names or service.subject_alt_names or tls.server_name
        if not names and service.host.startswith("*") and not port.protocol.is_http:
            what = (
                f"the name in the certificate of {at} is not verified: any certificate that the CA has signed is "
                "accepted"
            )
            return "WFT0206", what, "set `sni` or `subjectAltNames`"
    for runner in _behind(service, subset, facts):
        number = runner.instance.port_for(port)
        if number is None:
            continue
        mode = facts.modes(service.namespace, runner.labels).at(number)
        if tls.mode is ClientTlsMode.DISABLE and mode is TlsMode.STRICT and runner.instance.intercepts(number):
            return (
                "WFT0207",
                f"calls to {at} fail: they are plaintext, and {runner.name} accepts only mutual TLS there",
                "leave `tls` out: proxies use mutual TLS automatically",
            )
        if tls.mode is ClientTlsMode.SIMPLE and runner.instance.intercepts(number):
            expects = "accepts only mutual TLS" if mode is TlsMode.STRICT else "expects HTTP"
            if mode is TlsMode.STRICT or port.protocol.is_http:
                return (
                    "WFT0208",
                    f"calls to {at} fail: they are TLS without a certificate of the mesh, and {runner.name} {expects} "
                    "there",
                    "leave `tls` out: proxies use mutual TLS automatically",
                )
        if runner.instance.gateway:
            if tls.mode is ClientTlsMode.ISTIO_MUTUAL and not _takes_own_tls(service, runner, number, facts):
                return (
                    "WFT0209",
                    f"calls to {at} fail: they are mutual TLS, and the gateway {runner.name} has no server there that "
                    "accepts mutual TLS",
                    "set the server's `tls.mode` to ISTIO_MUTUAL, or leave `tls` out here",
                )
            continue
        if tls.mode is ClientTlsMode.ISTIO_MUTUAL and not runner.instance.speaks_tls(number):
            return (
                "WFT0209",
                f"calls to {at} fail: they are mutual TLS, and {runner.name} has no proxy there to terminate the TLS",
                "leave `tls` out: proxies use mutual TLS towards workloads that have a proxy",
            )
        if tls.mode is ClientTlsMode.ISTIO_MUTUAL and mode is TlsMode.DISABLE:
            return (
                "WFT0210",
                f"calls to {at} fail: they are mutual TLS, which a PeerAuthentication disables for {runner.name}",
                "leave `tls` out, or set the PeerAuthentication to PERMISSIVE",
            )
    return _WELL


def _takes_own_tls(service: Service, runner: Runner, number: int, facts: Facts) -> bool:
    """Whether the gateway `runner` may accept the mesh's TLS on the port `number` of a service: it has a TLS or HTTPS
    server there whose TLS mode is ISTIO_MUTUAL or PASSTHROUGH, or is not known."""
    there = [each.server for each in facts.servers(service.namespace, runner) if each.listens == number]
    return any(
        server.encrypted
        and (server.tls is None or server.tls.mode in (ServerTlsMode.ISTIO_MUTUAL, ServerTlsMode.PASSTHROUGH))
        for server in there
    )


def _behind(service: Service, subset: Subset | None, facts: Facts) -> tuple[Runner, ...]:
    runners = facts.selected(service.namespace, service.selector) if service.selector else ()
    return tuple(runner for runner in runners if subset is None or selects(subset.labels, runner.labels))


def _of_headless(service: Service, facts: Facts) -> Iterator[Problem]:
    """Findings about headless services of which only some workloads accept mutual TLS. Callers use the workload's
    address, which does not show whether the workload accepts TLS, so mutual TLS is used only if all accept it."""
    if not service.headless or not service.selector or not facts.settings.auto_mtls:
        return
    for index, port in enumerate(service.ports):
        secured: dict[bool, str] = {}
        for runner in _behind(service, None, facts):
            number = runner.instance.port_for(port)
            if number is not None and port.protocol is not Protocol.UDP:
                mode = facts.modes(service.namespace, runner.labels).at(number)
                secured.setdefault(runner.instance.speaks_tls(number) and mode is not TlsMode.DISABLE, runner.name)
        if len(secured) == 2:
            what = (
                f"port {port.number} is called in plaintext: {secured[False]} does not accept mutual TLS, "
                f"{secured[True]} does, and callers of a headless service cannot tell them apart"
            )
            yield finding(
                "WFT0211",
                service.origin,
                f"spec.ports[{index}]",
                what,
                "give all workloads of the service a proxy, or none",
            )


def _of_policy(policy: PeerAuthentication, facts: Facts, ports: Ports) -> Iterator[Problem]:
    if policy.selector and policy.namespace == facts.settings.root_namespace:
        what = (
            "in the root namespace a PeerAuthentication applies to the whole mesh: with a `selector` it has no effect"
        )
        yield finding(
            "WFT0502",
            policy.origin,
            "spec.selector",
            what,
            "move the PeerAuthentication to the namespace of the workload",
        )
        return
    yield from selects_nothing("WFT0503", policy, facts, "the PeerAuthentication has no effect")
    chosen = facts.chosen(policy.namespace, policy.selector)
    runners = [runner for _, runner in chosen]
    strict = TlsMode.STRICT in (policy.mode, *(mode for _, mode in policy.ports))
    if strict and runners and not any(runner.instance.meshed for runner in runners):
        names = ", ".join(runner.name for runner in runners[:3]) + (" and others" if len(runners) > 3 else "")
        what = f"{names} {'runs' if len(runners) == 1 else 'run'} without a proxy, so plaintext is not rejected"
        yield finding(
            "WFT0504", policy.origin, "spec", what, "remove `sidecar.istio.io/inject: false` from the Workload"
        )
    for number, _ in policy.ports:
        code, what, hint = _of_number(number, chosen, ports)
        if code:
            yield finding(code, policy.origin, f"spec.portLevelMtls.{number}", what, hint)


def _of_number(number: int, chosen: list[tuple[str, Runner]], ports: Ports) -> tuple[str, str, str]:
    """The code, message and hint of the finding about a port number in portLevelMtls; empty strings if there is no
    finding. `chosen`: the runners (workloads or pods) that the policy selects, each with its namespace."""
    if meant := ports.meant(number, chosen):
        what = f"{number} is the Service's port, and the workload listens on port {meant}: this mode has no effect"
        return "WFT0505", what, f"use {meant}"
    declared = ports.declared(chosen)
    if declared and number not in declared:
        listed = ", ".join(map(str, declared[:12]))
        return (
            "WFT0506",
            f"no workload that the PeerAuthentication selects declares port {number}: this mode has no effect",
            f"declared: {listed}",
        )
    return _WELL
