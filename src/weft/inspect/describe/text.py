"""Format the description of a pod or service as lines of text: first its identity, then the routes to it, then the
policies that guard it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.base.problem import Problem, Where
from weft.inspect.describe.gateways import gateway_word, left_out_lines, served_lines
from weft.inspect.describe.pods_and_services import Calling, Guard, Mode, PodFacts, Port, ServiceFacts, ServicePicture
from weft.inspect.describe.routes import Routing, RuleFacts, labels
from weft.mesh.calls import MOST

_BAR = "-" * 20


def pod_lines(pod: PodFacts) -> Iterator[str]:
    yield f"Pod: {pod.name}.{pod.namespace}" + ("" if pod.ready else " (not ready)")
    if pod.workload:
        yield f"   Workload: {pod.workload}"
    yield f"   Labels: {labels(pod.labels) or 'none'}"
    yield f"   Addresses: {', '.join(pod.addresses) or 'none'}"
    why = f"{pod.proxy.why}{_in(pod.proxy.where)}"
    if pod.proxy.has:
        yield f"   Proxy: yes, {why}"
        yield f"   Identity: {pod.identity}"
    else:
        yield f"   Proxy: none, {why}"
        yield "   Identity: none; the pod is called in plaintext, and no policy guards it"
    if not pod.services:
        yield _BAR
        yield "Services: none selects it, so it cannot be called by a service name"
    for service in pod.services:
        yield _BAR
        yield from _service_lines(service, "this pod")
    for served in pod.served:
        yield _BAR
        yield from served_lines((served,))
    for left in pod.left_out:
        yield _BAR
        yield from left_out_lines(left)
    if pod.served:
        yield _BAR
        yield from _guards("AuthorizationPolicies", pod.authorization, "none, so every caller is allowed")
        yield from _guards("RequestAuthentications", pod.authentication, "none, so no token is checked")
    elif pod.proxy.has:
        yield _BAR
        yield "Mutual TLS:"
        yield from (f"   {_mode(mode, alone=len(pod.modes) == 1)}" for mode in pod.modes)
        yield from _guards("AuthorizationPolicies", pod.authorization, "none, so every caller is allowed")
        yield from _guards("RequestAuthentications", pod.authentication, "none, so no token is checked")
        yield f"Sidecar: {_object(pod.sidecar) if pod.sidecar else 'none, so it sees every exported service'}"
        if pod.calls is not None:
            yield _on_demand(pod.calls, "its Sidecar shows" if pod.sidecar else "it sees")
        if pod.telemetry:
            yield f"Telemetry: {', '.join(map(_object, pod.telemetry))}"
    yield from _problems(pod.problems)


def _on_demand(calls: Calling, shown: str) -> str:
    if calls.too_many:
        why = f"because the pod has called more than {MOST:,} addresses"
        return f"On demand: no longer, the proxy is sent every service {why}"
    if not calls.of:
        return f"On demand: there is no service that {shown} ({calls.why})"
    if calls.every:
        since = "no longer" if calls.before else "no"
        return f"On demand: {since}, the proxy is sent {_all(calls.of)} that {shown} ({calls.why})"
    known = (
        f"the proxy has {len(calls.hosts):,} of {calls.of:,} services, and gets each of the others at its first call"
    )
    if len(calls.hosts) == calls.of:
        known = f"the proxy has {_all(calls.of)} that {shown}, and gets a new one at its first call"
    if calls.kept:
        known += f"; the proxy got {calls.kept:,} of them before it was on demand, and keeps them until it is restarted"
    return f"On demand: {known} ({calls.why})"


def _all(number: int) -> str:
    return f"all {number:,} services" if number != 1 else "the one service"


def service_lines(picture: ServicePicture) -> Iterator[str]:
    yield from _service_lines(picture.service, "some pod")
    addresses = ", ".join(picture.addresses)
    yield f"   Addresses: {addresses or 'none of its own'}" + (" (outside the mesh)" if picture.external else "")
    yield _BAR
    if not picture.members and not picture.written:
        yield "Pods: none, so calls fail"
    elif picture.members:
        yield "Pods:"
    for member in picture.members:
        yield f"   {member.name}: " + ", ".join(
            (
                "ready" if member.ready else "not ready",
                "with a proxy" if member.proxy else "without a proxy",
                *([f"subset {', '.join(member.subsets)}"] if member.subsets else []),
            )
        )
        yield from (f"      {_mode(mode, alone=False)}" for mode in member.modes)
    if picture.written:
        yield f"Endpoints beside pods: {', '.join(picture.written)}"
    yield from _problems(picture.problems)


def _service_lines(service: ServiceFacts, pods: str) -> Iterator[str]:
    yield _titled("Service", service.where)
    yield f"   Host: {service.host}"
    yield from (f"   {_port(port)}" for port in service.ports)
    for rule in service.rules:
        yield from _rule_lines(rule, pods)
    for routing in service.routings:
        yield from _routing_lines(routing, pods)
    if not service.routings:
        yield "   VirtualServices: none, so calls go to any of its pods"


def _port(port: Port) -> str:
    name = f" {port.name}" if port.name else ""
    text = f"Port:{name} {port.number}/{port.protocol.upper()} targets pod port {port.target}"
    text = text if port.served else f"{text}, which no pod has"
    return f"{text}; UDP bypasses the proxies: no routes, policies or TLS" if port.protocol == "udp" else text


def _rule_lines(rule: RuleFacts, pods: str) -> Iterator[str]:
    unused = "" if rule.in_force else ", not in force for callers in its namespace: another one takes precedence"
    yield f"   {_titled(_kind(rule.where, 'DestinationRule'), rule.where)} for {rule.host}{unused}"
    inside = [f"{each.name} ({labels(each.labels)})" for each in rule.subsets if each.pods]
    outside = [f"{each.name} ({labels(each.labels)})" for each in rule.subsets if not each.pods]
    if inside:
        yield f"      Subsets that {pods} is in: {', '.join(inside)}"
    if outside:
        not_in = "this pod is not in" if pods == "this pod" else "no pod is in"
        yield f"      Subsets that {not_in}: {', '.join(outside)}"
    yield f"      Traffic policy: {', '.join(rule.policy) or 'none'}"


def _routing_lines(routing: Routing, pods: str) -> Iterator[str]:
    notes = "" if routing.in_force else ", not in force for sidecars of its namespace"
    if routing.callers:
        notes = f", in force only for callers in {routing.callers}"
    if routing.gateways:
        notes += f", at gateway {', '.join(map(gateway_word, routing.gateways))}"
    yield f"   {_titled(_kind(routing.where, 'VirtualService'), routing.where)}{notes}"
    for route in routing.routes:
        name = f" {route.name}" if route.name else ""
        line = f" (line {route.where.line})" if route.where.file and route.where.line else ""
        unreached = (
            "not to this service" if route.elsewhere else f"does not reach {'it' if pods == 'this pod' else 'any pod'}"
        )
        mark = f"reaches {pods}" if route.reaches else unreached
        yield f"      {route.kind} route {route.number}{name}{line}: {route.when}: {route.goes}; {mark}"
        if route.also:
            yield f"         Settings: {', '.join(route.also)}"


def _kind(where: Where, otherwise: str) -> str:
    """The kind of the object that the user wrote: an HTTPRoute is shown as such, not as the VirtualService derived
    from it. `otherwise`: the kind if `where` names no object."""
    return where.object.partition(" ")[0] or otherwise


def _mode(mode: Mode, *, alone: bool) -> str:
    at = f"Port {mode.port}" if mode.port else "Every port" if alone else "Other ports"
    if not mode.intercepted:
        return f"{at}: not intercepted by the proxy, so no policy applies there"
    meaning = {
        "STRICT": "only mutual TLS is accepted",
        "PERMISSIVE": "mutual TLS and plaintext are accepted",
        "DISABLE": "only plaintext is accepted",
    }[mode.mode]
    return f"{at}: {mode.mode}, {meaning}; {_object(mode.decided_by) if mode.decided_by else 'by default'}"


def _guards(title: str, guards: tuple[Guard, ...], otherwise: str) -> Iterator[str]:
    if not guards:
        yield f"{title}: {otherwise}"
        return
    yield f"{title}:"
    yield from (f"   {_object(each.where)}: {each.says}" for each in guards)


def _problems(problems: Iterable[Problem]) -> Iterator[str]:
    lines = [f"   {problem}" for problem in problems]
    if lines:
        yield _BAR
        yield "Problems:"
        yield from lines


def _titled(title: str, where: Where) -> str:
    return f"{title}: {_object(where).removeprefix(f'{title} ')}"


def _object(where: Where) -> str:
    return f"{where.object}{_place(where)}"


def _in(where: Where | None) -> str:
    return f": {_object(where)}" if where is not None else ""


def _place(where: Where) -> str:
    return f" ({where.file}:{where.line})" if where.file else ""
