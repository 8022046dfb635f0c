"""Find the reasons for the endpoints of a cluster, and for the secrets that the node's agent provides: the objects
that they come from and the rules that apply."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from weft.explain.decision import ObjectSource
from weft.inspect.reasons import rules
from weft.inspect.reasons.clusters import Policy, locality
from weft.inspect.reasons.part import Ground, Part, sources
from weft.inspect.reasons.rules import DecisionRule
from weft.model.endpoint import Endpoint
from weft.model.instance import Instance
from weft.model.locality import setting_for, without_rule
from weft.model.names import ObjectKey, Origin
from weft.model.proxy import CERTIFICATE
from weft.model.service import Service
from weft.translate.tls import ENDPOINT_METADATA


def parts(ground: Ground, assignment: ClusterLoadAssignment) -> Iterator[Part]:
    """The reasons for an assignment: the Service and the rules that select endpoints, then for each endpoint its pod or
    WorkloadEntry. `ground`: the views of the proxies' group."""
    _, number, subset_name, host = (*assignment.cluster_name.split("|"), "", "", "", "")[:4]
    view = ground.service(host)
    service = view.service if view is not None else None
    port = service.port(int(number)) if service is not None and number.isdecimal() else None
    if view is None or service is None or port is None:
        yield Part("", "", (), (rules.LAST_ACCEPTED,))
        return
    rule = view.rule
    subset = next((each for each in rule.subsets if each.name == subset_name), None) if rule else None
    made_by = sources(*service.origins)
    instances = {(each.namespace, each.name): each for each in ground.mesh.instances(service.namespace)}
    by = _selected(service, by_slice=any(each.by_slice for each in instances.values()))
    if subset is not None and rule is not None:
        made_by = (*sources(rule.origin_of(subset), line=subset.line, part=f"subsets[{subset.name}]"), *made_by)
        by += (rules.SUBSET_BY_LABELS,)
    policy = Policy(rule, port.number, subset)
    near = setting_for(policy.chosen, without_rule(service, ground.mesh.settings.locality))
    if near is not None and view.caller.whereabouts is not None:
        objects, decided = locality(ground, service, policy)
        made_by, by = tuple(dict.fromkeys((*made_by, *objects))), (*by, decided)
    yield Part("", "", made_by, by)
    known = {(each.address, each.port): each for each in ground.mesh.endpoints(service, port)}
    for place, group in enumerate(assignment.endpoints):
        for position, entry in enumerate(group.lb_endpoints):
            address = entry.endpoint.address.socket_address
            shown = f"{address.address}:{address.port_value}" if address.address else entry.endpoint.address.pipe.path
            endpoint = known.get((address.address, address.port_value))
            objects, answering = _answering(service, endpoint, instances)
            own = (rules.SUBSET_BY_LABELS,) if subset is not None else ()
            where, at = f"endpoints[{place}].lb_endpoints[{shown}]", f"endpoints[{place}].lb_endpoints[{position}]"
            yield Part(where, at, objects, (answering, *own, _tls(entry)))


def secret(ground: Ground, name: str) -> Part:
    """The reason for a secret from the node's agent: the proxy's own certificate, or the roots that it trusts.
    `ground`: the views of the proxies' group."""
    if name != CERTIFICATE:
        return Part("", "", (), (rules.MESH_ROOTS,))
    key = ObjectKey("ServiceAccount", ground.group.namespace, ground.group.service_account)
    return Part("", "", sources(_origin(ground, key)), (rules.WORKLOAD_CERTIFICATE,))


def _selected(service: Service, *, by_slice: bool) -> tuple[DecisionRule, ...]:
    if service.sliced and by_slice:
        return (rules.ENDPOINTS_BY_SLICE,)
    if service.selector:
        return (rules.NOT_READY_ENDPOINTS if service.publish_not_ready else rules.READY_ENDPOINTS,)
    return (rules.WRITTEN_ENDPOINTS,)


def _answering(
    service: Service, endpoint: Endpoint | None, instances: dict[tuple[str, str], Instance]
) -> tuple[tuple[ObjectSource, ...], DecisionRule]:
    if endpoint is None:
        return (), rules.LAST_ACCEPTED
    namespace, _, name = endpoint.instance.partition("/")
    instance = instances.get((namespace, name))
    if instance is None:
        return sources(service.origin), rules.WRITTEN_ENDPOINTS
    own = instance.origin or Origin(ObjectKey("Pod", instance.namespace, instance.name))
    return (*sources(own), *sources(service.origin)), _selected(service, by_slice=instance.by_slice)[0]


def _tls(entry: LbEndpoint) -> DecisionRule:
    marked = ENDPOINT_METADATA in entry.metadata.filter_metadata
    return rules.ENDPOINT_TLS if marked else rules.ENDPOINT_PLAIN


def _origin(ground: Ground, key: ObjectKey) -> Origin:
    values = ground.mesh.get(key)
    return next((value.origin for value in values if value.origin is not None), Origin(key))
