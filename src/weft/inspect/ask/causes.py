"""Likely causes of a request's failure, beyond the decisions on its own path. Input: an explained request and all
problems of the mesh. Output: the problems of objects that the request involves, and causes that are not on the
path: a host without a Service, a service that is not visible to the caller, endpoints that are not ready, a STALE
proxy.

Rule: these problems (clues) are guesses at the cause. They never change a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from weft.base.ambiguous import Ambiguous
from weft.base.problem import Problem, Severity, Where
from weft.base.suggest import did_you_mean
from weft.control.sync_status import STALE, ProxySync
from weft.explain.decision import Explanation, Kind
from weft.explain.request import Request
from weft.explain.world import ExplainedWorkload
from weft.inspect.ask.taken_routes import is_of_another, taken_routes
from weft.inspect.describe.pods_and_services import Refused, members_of, objects_about, unready
from weft.inspect.stage import NoSuchWorkload, Stage, lacking
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.group import group_of
from weft.model.instance import Instance
from weft.model.names import ObjectKey, Origin, host_covers, where_of
from weft.model.peer_authentication import PeerAuthentication
from weft.model.request_authentication import RequestAuthentication
from weft.model.scope import exported
from weft.model.service import Service
from weft.model.virtual_service import MESH, VirtualService
from weft.translate.names import PASSTHROUGH

_WELL = (Kind.DELIVERED, Kind.PASSED_ON)
_PAST = "; the call bypasses the mesh, without its routes and without mutual TLS"


class Wrong(msgspec.Struct, frozen=True):
    """All known problems of a mesh. `refused`: rejected objects, as far as they could be parsed. `stale`: proxy
    (POD.NAMESPACE) -> the first push that the proxy has not acknowledged."""

    problems: tuple[Problem, ...] = ()
    refused: Refused = {}
    stale: Mapping[str, int] = {}


def stale(proxies: Iterable[ProxySync]) -> dict[str, int]:
    """Map each STALE proxy to the first push that it has not acknowledged. If a proxy has two streams, only the
    newer one counts, which is the later one in `proxies`."""
    since: dict[str, int] = {}
    for proxy in proxies:
        pushes = [each.stale_since_push for each in proxy.resources.values() if each.state == STALE]
        since.pop(proxy.proxy, None)
        if pushes:
            since[proxy.proxy] = min(pushes)
    return since


def clues(stage: Stage, request: Request, explanation: Explanation, wrong: Wrong) -> tuple[Problem, ...]:
    caller = _caller(stage, request)
    called = _called(stage, request, caller) if caller is not None else None
    problems: list[Problem] = [*_stale(stage, request, explanation, wrong.stale)]
    if caller is not None and explanation.verdict.kind not in _WELL:
        problems += _of_failure(stage, request, explanation, caller, called)
    elif caller is not None and any(each.verdict.cluster == PASSTHROUGH for each in explanation.outcomes):
        problems += _hidden(stage, called, request, caller, _PAST) if called is not None else ()
    involved = _deciding(request, explanation) | _guarding(stage, explanation)
    if called is not None:
        involved |= objects_about(stage.mesh, called, wrong.refused)
    taken = taken_routes(stage.mesh, explanation)
    problems += (each for each in wrong.problems if each.where.object in involved and not is_of_another(each, taken))
    return tuple(dict.fromkeys(problems))


def _stale(stage: Stage, request: Request, explanation: Explanation, stale: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each STALE proxy on the request's path. The path includes the caller's proxy and all pods
    that load balancing may choose."""
    met = dict.fromkeys((request.caller, *(step.proxy for each in explanation.outcomes for step in each.steps)))
    for endpoint in (endpoint for each in explanation.outcomes for endpoint, _ in each.verdict.endpoints):
        workload = stage.at(endpoint.rpartition(":")[0].strip("[]")) if stale else None
        if workload is not None:
            met[workload.name] = None
    for name in met:
        if name in stale:
            pod = name.rpartition(".")[0]
            what = f"{pod}'s proxy is STALE since push {stale[name]}: it may still use older config"
            yield _clue(Where(), what, f"weft proxy-status {name}")


def _caller(stage: Stage, request: Request) -> Instance | None:
    try:
        return stage.instance(request.caller)
    except (NoSuchWorkload, Ambiguous):
        return None


def _called(stage: Stage, request: Request, caller: Instance) -> Service | None:
    """The service that the request of `caller` calls, found by the request's host or its address; None if there is
    none."""
    if (named := stage.service(request.host, caller.namespace)) is not None or not request.address:
        return named
    return next(iter(stage.mesh.services_at(request.address)), None)


def _of_failure(
    stage: Stage, request: Request, explanation: Explanation, caller: Instance, called: Service | None
) -> Iterator[Problem]:
    if caller.gateway and explanation.verdict.status == 404 and explanation.verdict.route == "nobody":
        yield from _uncounted(stage, request.host.lower().rstrip("."), caller)
    # External names need no Service: those at a gateway, and plain addresses.
    known = caller.gateway or request.address
    if called is None and not known and not stage.resolve(request.host, ExplainedWorkload(request.caller)):
        what = f"no Service and no ServiceEntry has the name {request.host}"
        yield _clue(Where(), what, _hint_for_unknown_host(stage, request.host.lower().rstrip("."), caller.namespace))
        return
    for service in _services(stage, explanation, called):
        yield from _hidden(stage, service, request, caller)
        if service == called and service.port(request.port) is None:
            ports = ", ".join(f"{service.name}:{port.number}" for port in service.ports)
            hint = f"call {ports}, or add the port to the Service" if ports else "add the port to the Service"
            yield _clue(where_of(service.origin), lacking(service, request.port), hint)
            continue
        yield from _not_ready(stage, service)


def _uncounted(stage: Stage, host: str, gateway: Instance) -> Iterator[Problem]:
    """Yield a problem for each VirtualService for the host whose routes the gateway does not use, with the reason."""
    bound = stage.mesh.scope(group_of(gateway)).servers or ()
    served = {each.gateway for each in bound}
    for _, values in stage.mesh.values():
        for each in values:
            if not isinstance(each, VirtualService) or not any(host_covers(name, host) for name in each.hosts):
                continue
            gateways = [name for name in each.gateways if name != MESH]
            ours = [name for name in gateways if name in served]
            if not ours:
                to = (
                    f"bound to {', '.join(gateways)}, which {gateway.name} does not serve"
                    if gateways
                    else "only for sidecars"
                )
                hint = (
                    f"bind it to one of {', '.join(sorted(served))}"
                    if served
                    else f"create a Gateway that selects {gateway.name}"
                )
                yield _clue(where_of(each.origin), f"it has the host {host}, but is {to}", hint)
            elif not any(server.admits(each, host) for server in bound):
                taking = (name for server in bound if server.gateway in ours for name in server.hosts)
                hosts = ", ".join(dict.fromkeys(f"{name.namespace}/{name.host}" for name in taking))
                no_server = f"no server of {', '.join(ours)} accepts this host from namespace {each.namespace}"
                what = f"it has the host {host}, but {no_server}"
                yield _clue(where_of(each.origin), what, f"these servers accept {hosts}")


def _hint_for_unknown_host(stage: Stage, host: str, namespace: str) -> str:
    """Return a hint for an unknown host: a service of the same name in another namespace, a service of a similar
    name, or a ServiceEntry for a host outside the mesh."""
    domain = f".svc.{stage.mesh.settings.domain}"
    short = host.removesuffix(domain).removesuffix(".svc")
    of_mesh = {each for each in stage.services() if each.host == f"{each.name}.{each.namespace}{domain}"}
    same = sorted(f"{each.name}.{each.namespace}" for each in of_mesh if each.name == short.partition(".")[0])
    if same and short.count(".") <= 1:
        return f"did you mean `{'` or `'.join(same[:3])}`?"
    if pods := [pod for pod in stage.mesh.instances(namespace) if short in (pod.workload, pod.name)]:
        by = sorted(each.name for each in of_mesh if any(pod in pods for pod in members_of(stage.mesh, each)))
        instead = f"call {', '.join(by)}" if by else "create a Service that selects it"
        return f"{short} is a workload, and only Services can be called: {instead}"
    names = {each.host for each in stage.services()}
    names |= {f"{each.name}.{each.namespace}" for each in of_mesh}
    names |= {each.name for each in of_mesh if each.namespace == namespace}
    guess = did_you_mean(host, names)
    if guess.startswith("did you"):
        return guess
    if "." in short and short == host:
        return (
            f"if {host} is outside the mesh, create a ServiceEntry for it; pods of a local mesh reach nothing outside"
        )
    return "call a service in another namespace as NAME.NAMESPACE"


def _services(stage: Stage, explanation: Explanation, called: Service | None) -> list[Service]:
    """The service that the request called (`called`, if known), and the service to which it was routed, by the cluster
    in the explanation's verdict; each once."""
    parts = explanation.verdict.cluster.split("|")
    routed = next((each for each in stage.services() if len(parts) == 4 and each.host == parts[3]), None)
    return [*dict.fromkeys(each for each in (called, routed) if each is not None)]


def _hidden(stage: Stage, service: Service, request: Request, caller: Instance, then: str = "") -> Iterator[Problem]:
    """Yield a problem, with the reason, if the caller cannot see the called port of the service. `then`: text for
    the message that says what happens to the call instead."""
    group = group_of(caller)
    shown = {port.number for port in stage.mesh.scope(group).ports(service)}
    if not caller.proxied or request.port in shown or (shown and service.port(request.port) is None):
        return
    hidden = f"{service.host} is hidden from {caller.name}.{caller.namespace}"
    if not exported(service.export_to, owner=service.namespace, viewer=caller.namespace):
        words = ", ".join(service.export_to)
        yield _clue(
            where_of(service.origin), f"{hidden}: it is exported to `{words}` only{then}", "change its `exportTo`"
        )
        return
    sidecar = stage.mesh.sidecar(group)
    entries = ", ".join(host for listener in sidecar.egress for host in listener.hosts) if sidecar else ""
    hint = f"add {service.namespace}/{service.host} to `egress` of the Sidecar"
    yield _clue(
        where_of(sidecar.origin if sidecar else None),
        f"{hidden}: the caller's Sidecar imports only {entries}{then}",
        hint,
    )


def _not_ready(stage: Stage, service: Service) -> Iterator[Problem]:
    """Yield a problem for each pod of the service if no pod of the service is ready. If one is ready, none is
    reported: the service has an endpoint, so the other pods are not the cause."""
    members = members_of(stage.mesh, service)
    if not any(pod.ready for pod in members):
        yield from unready(members, service.host)


def _deciding(request: Request, explanation: Explanation) -> set[str]:
    """The names of the objects that caused the decisions in the explanation. Services count only in the decisions of
    the caller's proxy, because a server's proxy names every Service that shares its port."""
    steps = [step for outcome in explanation.outcomes for step in outcome.steps]
    sources = {
        source for step in steps for source in step.sources if step.proxy == request.caller or source.kind != "Service"
    }
    return {str(ObjectKey(source.kind, source.namespace, source.name)) for source in sources}


def _guarding(stage: Stage, explanation: Explanation) -> set[str]:
    """The names of the policies (AuthorizationPolicy, PeerAuthentication, RequestAuthentication) that apply to the
    workloads in the explanation's verdicts."""
    reached = {outcome.verdict.workload for outcome in explanation.outcomes} - {""}
    groups = [group_of(stage.instance(name)) for name in reached if stage.workload(name) is not None]
    origins: set[Origin | None] = set()
    for group in groups:
        origins.update(each.origin for each in stage.mesh.policies(AuthorizationPolicy, group))
        origins.update(each.origin for each in stage.mesh.policies(PeerAuthentication, group))
        origins.update(each.origin for each in stage.mesh.policies(RequestAuthentication, group))
    return {str(origin.key) for origin in origins if origin is not None}


def _clue(where: Where, what: str, hint: str) -> Problem:
    return Problem(where, what, hint, Severity.WARNING)
