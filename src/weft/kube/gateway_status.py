"""Computes the statuses of the Gateway API's objects: a route has an entry for each parent, a Gateway or a ListenerSet
has conditions of its own and of each listener, a policy has an entry for each Gateway that it applies to. Outcomes are
the input, whole statuses the output; `status.py` writes them. Rule: entries of other controllers are kept unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import msgspec

from weft.base.problem import Problem, Severity
from weft.kube.gateway_features import SUPPORTED
from weft.mesh.gateway_api.attached import OWN_CLASS
from weft.mesh.mesh import Mesh
from weft.model.gateway_api import (
    CONTROLLER,
    GATEWAY_KIND,
    GATEWAY_NAME,
    GROUP,
    LISTENER_SET,
    BackendTls,
    GatewayClass,
    ListenerSet,
    ParentRef,
    StandardGateway,
    StandardRoute,
)
from weft.model.instance import Instance
from weft.model.names import ObjectKey, selects
from weft.model.outcome import (
    ACCEPTED,
    INSECURE_VALIDATION,
    GatewayOutcome,
    ListenerOutcome,
    ListenerSetOutcome,
    StatusCondition,
    not_accepted,
)
from weft.model.value import Value
from weft.model.virtual_service import destinations

_LONGEST = 4_096
_MOST_ANCESTORS = 16  # the Gateway API's limit for a policy
_REASONS = {"spec.infrastructure.parametersRef": "InvalidParameters", "spec.addresses": "UnsupportedAddress"}
Entries = tuple[tuple[ParentRef, tuple[StatusCondition, ...]], ...]


class RouteWanted(msgspec.Struct, frozen=True):
    parents: Entries = ()


class PolicyWanted(msgspec.Struct, frozen=True):
    ancestors: Entries = ()


class GatewayWanted(msgspec.Struct, frozen=True):
    conditions: tuple[StatusCondition, ...]
    listeners: tuple[ListenerOutcome, ...] = ()
    addresses: tuple[str, ...] = ()
    listener_sets: int = 0


class ListenerSetWanted(msgspec.Struct, frozen=True):
    conditions: tuple[StatusCondition, ...]
    listeners: tuple[ListenerOutcome, ...] = ()


class ClassWanted(msgspec.Struct, frozen=True):
    conditions: tuple[StatusCondition, ...]


Wanted = RouteWanted | PolicyWanted | GatewayWanted | ListenerSetWanted | ClassWanted


def all_wanted(
    mesh: Mesh, refused: Mapping[ObjectKey, tuple[Value, ...]], problems: Iterable[Problem]
) -> dict[ObjectKey, Wanted]:
    """Return, by key, the status that each Gateway API object should have, for all objects of which weft is the
    controller. `refused`: the rejected objects, with the values that could still be parsed from them. `problems`: all
    problems of the mesh."""
    errors: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.severity is Severity.ERROR:
            errors.setdefault(problem.where.object, []).append(problem)
    statuses: dict[ObjectKey, Wanted] = {}
    parents: dict[ObjectKey, dict[int, tuple[ParentRef, tuple[StatusCondition, ...]]]] = {}
    ours = set()  # Gateways of weft's classes
    classes = {OWN_CLASS}
    policies: dict[ObjectKey, list[tuple[str, str, tuple[StatusCondition, ...]]]] = {}
    leading = _leading(mesh)
    for derived in mesh.derived():
        for outcome in derived.routes:
            if outcome.ours:
                entries = parents.setdefault(outcome.route, {})
                entries[outcome.parent.index] = (outcome.parent, outcome.conditions)
        if derived.gateway is not None:
            ours.add(derived.gateway.gateway)
            wanted = statuses[derived.gateway.gateway] = _gateway(derived.gateway, mesh)
            for each in derived.listener_sets:
                statuses[each.listener_set] = _listener_set(each, wanted)
        for policy in derived.policies:
            policies.setdefault(policy.policy, []).append((policy.service, policy.host, policy.conditions))
    for key, values in mesh.values():
        for value in values:
            if isinstance(value, StandardRoute):
                entries = parents.get(key, {})
                statuses[key] = RouteWanted(tuple(entries[index] for index in sorted(entries)))
            elif isinstance(value, GatewayClass):
                classes.discard(value.name)
                if value.controller == CONTROLLER:
                    classes.add(value.name)
                    statuses[key] = ClassWanted((ACCEPTED,))
    ours.update(
        key
        for key, values in refused.items()
        if any(isinstance(value, StandardGateway) and value.class_name in classes for value in values)
    )
    for key, values in refused.items():
        message = _message(errors.get(str(key), ()))
        for value in values:
            if isinstance(value, BackendTls):
                held_back = (not_accepted("Invalid", message),)
                policies[key] = [
                    (each.service, each.host, held_back) for each in values if isinstance(each, BackendTls)
                ]
            elif isinstance(value, StandardRoute):
                rejected = not_accepted("UnsupportedValue", message)
                meant = (each for each in value.parents if _is_under(each, ours, mesh))
                statuses[key] = RouteWanted(tuple((each, (rejected,)) for each in meant))
            elif isinstance(value, StandardGateway) and key in ours:
                reason = _reason(errors.get(str(key), ()))
                programmed = StatusCondition("Programmed", holds=False, reason="Invalid", message=message)
                statuses[key] = GatewayWanted((not_accepted(reason, message), programmed))
            elif isinstance(value, ListenerSet) and ObjectKey(GATEWAY_KIND, *value.gateway[1:]) in ours:
                programmed = StatusCondition("Programmed", holds=False, reason="Invalid", message=message)
                statuses[key] = ListenerSetWanted((not_accepted("Invalid", message), programmed))
            elif isinstance(value, GatewayClass) and value.controller == CONTROLLER:
                statuses[key] = ClassWanted((not_accepted("InvalidParameters", message),))
    for key, targets in policies.items():
        statuses[key] = _policy(key, targets, leading)
    return statuses


def _is_under(parent: ParentRef, ours: set[ObjectKey], mesh: Mesh) -> bool:
    """Whether weft writes the status of routes at this parent: a Service, or one of weft's Gateways (`ours`), or a
    ListenerSet of such a Gateway."""
    if parent.kind == LISTENER_SET:
        values = mesh.get(ObjectKey(LISTENER_SET, parent.namespace, parent.name))
        names = [each.gateway[1:] for each in values if isinstance(each, ListenerSet)]
        return any(ObjectKey(GATEWAY_KIND, *each) in ours for each in names)
    return parent.kind != "Gateway" or ObjectKey(GATEWAY_KIND, parent.namespace, parent.name) in ours


def is_right(status: Mapping[str, Any], wanted: Wanted, generation: int) -> bool:
    """Whether an object's current `status` already has weft's part as it is wanted (`wanted`), for this generation of
    the object. Timestamps are ignored."""
    expected = status_of(status, wanted, generation, now="")
    return bool(_timeless(expected) == _timeless(status))


def status_of(status: Mapping[str, Any], wanted: Wanted, generation: int, *, now: str) -> dict[str, Any]:
    """Return the status that an object should have: its current `status`, with weft's part replaced by `wanted`. A
    condition keeps its lastTransitionTime as long as the condition's `status` field does not change; else it gets the
    time `now`. `generation`: the object's generation, for observedGeneration."""
    match wanted:
        case RouteWanted():
            parents = _told(_entries(status, "parents"), "parentRef", wanted.parents, generation, now)
            return {**status, "parents": parents}
        case PolicyWanted():
            ancestors = _told(_entries(status, "ancestors"), "ancestorRef", wanted.ancestors, generation, now)
            return {**status, "ancestors": ancestors[:_MOST_ANCESTORS]}
        case ClassWanted():
            conditions = _conditions(_entries(status, "conditions"), wanted.conditions, generation, now)
            return {**status, "conditions": conditions, "supportedFeatures": [{"name": each} for each in SUPPORTED]}
        case ListenerSetWanted():
            own = _conditions(_entries(status, "conditions"), wanted.conditions, generation, now)
            return {**status, "conditions": own, "listeners": _listeners(status, wanted.listeners, generation, now)}
    conditions = [each for each in _entries(status, "conditions") if each.get("type") != INSECURE_VALIDATION]
    if any(each.type == INSECURE_VALIDATION for each in wanted.conditions):
        conditions = list(_entries(status, "conditions"))
    result: dict[str, Any] = {
        **status,
        "conditions": _conditions(conditions, wanted.conditions, generation, now),
        "listeners": _listeners(status, wanted.listeners, generation, now),
    }
    if wanted.listener_sets:
        result["attachedListenerSets"] = wanted.listener_sets
    else:  # older definitions do not have the field
        result.pop("attachedListenerSets", None)
    if wanted.addresses:
        result["addresses"] = [{"type": _type(each), "value": each} for each in wanted.addresses]
    else:
        result.pop("addresses", None)
    return result


def _listeners(
    status: Mapping[str, Any], wanted: Iterable[ListenerOutcome], generation: int, now: str
) -> list[dict[str, Any]]:
    """Return the `listeners` of the status of a Gateway or a ListenerSet; the parameters are as for `status_of`."""
    before = {str(each.get("name")): each for each in _entries(status, "listeners")}
    return [
        {
            "name": each.name,
            "supportedKinds": [{"group": GROUP, "kind": kind.value} for kind in each.kinds],
            "attachedRoutes": each.attached,
            "conditions": _conditions(
                _entries(before.get(each.name, {}), "conditions"), each.conditions, generation, now, whole=True
            ),
        }
        for each in wanted
    ]


def _leading(mesh: Mesh) -> dict[str, list[ObjectKey]]:
    """Return host -> the keys of all Gateways whose routes lead to the host."""
    gateways: dict[str, list[ObjectKey]] = {}
    for derived in mesh.derived():
        if derived.gateway is not None:
            for host in {each.host for routing in derived.routings for _, each in destinations(routing)}:
                gateways.setdefault(host, []).append(derived.gateway.gateway)
    return gateways


def _policy(
    key: ObjectKey,
    targets: Iterable[tuple[str, str, tuple[StatusCondition, ...]]],
    leading: Mapping[str, Iterable[ObjectKey]],
) -> PolicyWanted:
    """Return the wanted status of the policy `key`: its ancestors and their conditions. `targets`: for each Service of
    the policy, its name, its host, and the conditions of the policy for this Service. `leading`: host → Gateways whose
    routes lead to the host. The ancestors are these Gateways, or, if no Gateway leads to the Service, the Service
    itself. If several Services of the policy have the same ancestor, a condition holds there only if it holds for all
    of them."""
    ancestors: dict[ParentRef, dict[str, StatusCondition]] = {}
    for service, host, conditions in targets:
        gateways = [ParentRef("Gateway", each.namespace, each.name, namespaced=True) for each in leading.get(host, ())]
        itself = ParentRef("Service", key.namespace, service, group="", namespaced=True)
        for ancestor in gateways or [itself]:
            conditions_by_type = ancestors.setdefault(ancestor, {})
            for each in conditions:
                if each.type not in conditions_by_type or conditions_by_type[each.type].holds:
                    conditions_by_type[each.type] = each
    return PolicyWanted(
        tuple((each, tuple(ancestors[each].values())) for each in sorted(ancestors, key=lambda each: each.place))
    )


def _gateway(outcome: GatewayOutcome, mesh: Mesh) -> GatewayWanted:
    """Return the wanted status of the Gateway of `outcome`: its conditions, its listeners, and the addresses at which
    it can be reached. It is not Programmed without a ready proxy, or with an address in `spec` that is not the host of
    a Service."""
    key = outcome.gateway
    label = ((GATEWAY_NAME, key.name),)
    conditions = outcome.conditions
    addresses = [
        value for each in mesh.get(key) if isinstance(each, StandardGateway) for _, value in each.addresses
    ]  # addresses of proxies that users deployed themselves
    usable = [each for each in addresses if _is_service(each, key.namespace, mesh)]
    lack = _lack(key, [each for each in mesh.instances(key.namespace) if selects(label, each.labels)])
    if len(usable) < len(addresses):
        what = f"no Service has the host {', '.join(each for each in addresses if each not in usable)}"
        lack = StatusCondition("Programmed", holds=False, reason="AddressNotUsable", message=what)
    if lack is not None:
        conditions = tuple(lack if each.type == "Programmed" and each.holds else each for each in conditions)
    reached = (
        address
        for service in mesh.services()
        if service.namespace == key.namespace and service.selector and set(label) <= set(service.selector)
        for address in service.addresses
    )
    reachable = tuple(usable if addresses else sorted(reached))
    return GatewayWanted(conditions, outcome.listeners, reachable, outcome.listener_sets)


def _listener_set(outcome: ListenerSetOutcome, gateway: GatewayWanted) -> ListenerSetWanted:
    """Return the wanted status of a ListenerSet. It is not Programmed while its Gateway is not. `gateway`: the wanted
    status of that Gateway."""
    lack = next((each for each in gateway.conditions if each.type == "Programmed" and not each.holds), None)
    conditions = outcome.conditions
    if lack is not None:
        unready = StatusCondition("Programmed", holds=False, reason="ParentNotProgrammed", message=lack.message)
        conditions = tuple(unready if each.type == "Programmed" and each.holds else each for each in conditions)
    return ListenerSetWanted(conditions, outcome.listeners)


def _is_service(host: str, namespace: str, mesh: Mesh) -> bool:
    """Whether `host` is the host of a Service: the Service's full name, or a short form that resolves to the full name
    in pods of `namespace`."""
    domain = mesh.settings.domain
    names = (host, f"{host}.{domain}", f"{host}.svc.{domain}", f"{host}.{namespace}.svc.{domain}")
    return any(each in mesh.hosts() for each in names)


def _type(address: str) -> str:
    try:
        ip_address(address)
    except ValueError:
        return "Hostname"
    return "IPAddress"


def _lack(key: ObjectKey, pods: Sequence[Instance]) -> StatusCondition | None:
    """Return the Programmed condition that states why no proxy serves the Gateway `key` yet; None if a proxy serves it.
    `pods`: the pods with the Gateway's label. A gateway pod is ready once its proxy has its configuration, so one ready
    pod is enough."""
    named = f"the label {GATEWAY_NAME}: {key.name}"
    gateways = [each for each in pods if each.gateway]
    if any(each.ready for each in gateways):
        return None
    if gateways:
        what = f"no gateway pod in {key.namespace} with {named} is ready: {', '.join(each.name for each in gateways)}"
        return StatusCondition("Programmed", holds=False, reason="Pending", message=what)
    what = f"no gateway pod in {key.namespace} has {named}"
    if pods:
        what = f"{what}; these pods have the label, but are not gateways: {', '.join(each.name for each in pods)}"
    return StatusCondition("Programmed", holds=False, reason="NoResources", message=what)


def _told(
    entries: Sequence[Mapping[str, Any]], name: str, wanted: Entries, generation: int, now: str
) -> list[Mapping[str, Any]]:
    others = [each for each in entries if each.get("controllerName") != CONTROLLER]
    before = [each for each in entries if each.get("controllerName") == CONTROLLER]
    result: list[Mapping[str, Any]] = list(others)
    for parent, conditions in wanted:
        reference = _reference(parent)
        known: Mapping[str, Any] = next((each for each in before if each.get(name) == reference), {})
        result.append(
            {
                name: reference,
                "controllerName": CONTROLLER,
                "conditions": _conditions(_entries(known, "conditions"), conditions, generation, now, whole=True),
            }
        )
    return result


def _reference(parent: ParentRef) -> dict[str, Any]:
    """Return the parentRef as JSON, for a status. The namespace of a route's parent is included only if the route
    itself states it; the namespace of a policy's ancestor is always included."""
    reference: dict[str, Any] = {"group": GROUP if parent.group is None else parent.group, "kind": parent.kind}
    if parent.namespaced:
        reference["namespace"] = parent.namespace
    reference["name"] = parent.name
    if parent.section:
        reference["sectionName"] = parent.section
    if parent.port:
        reference["port"] = parent.port
    return reference


def _conditions(
    before: Sequence[Mapping[str, Any]],
    wanted: Iterable[StatusCondition],
    generation: int,
    now: str,
    *,
    whole: bool = False,
) -> list[Mapping[str, Any]]:
    """Return the conditions of a status after setting the wanted ones; `before` are its current conditions. A condition
    keeps its lastTransitionTime as long as its status does not change, else it gets `now`. `whole`: all conditions are
    weft's, so those that are no longer wanted are removed. `generation`: the object's generation, for
    observedGeneration."""
    ours = tuple(wanted)
    current = {each.get("type"): each for each in before}
    others = [] if whole else [each for each in before if each.get("type") not in {one.type for one in ours}]
    conditions: list[Mapping[str, Any]] = list(others)
    for each in ours:
        status = "True" if each.holds else "False"
        same = current.get(each.type, {})
        conditions.append(
            {
                "type": each.type,
                "status": status,
                "reason": each.reason,
                "message": each.message[:_LONGEST],
                "observedGeneration": generation,
                "lastTransitionTime": same.get("lastTransitionTime", now) if same.get("status") == status else now,
            }
        )
    return sorted(conditions, key=lambda each: str(each.get("type")))


def _timeless(value: Any) -> Any:
    """Return the value without timestamps and with lists sorted, for comparison: other controllers may change the order
    of conditions and parents."""
    if isinstance(value, Mapping):
        return {name: _timeless(member) for name, member in value.items() if name != "lastTransitionTime"}
    if isinstance(value, list):
        return sorted((_timeless(each) for each in value), key=repr)
    return value


def _entries(holder: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    entries = holder.get(name)
    return [each for each in entries if isinstance(each, Mapping)] if isinstance(entries, list) else []


def _reason(errors: Iterable[Problem]) -> str:
    """Return the `reason` of an Accepted condition that does not hold: the field of the object's first error
    decides."""
    field = next((each.where.field for each in errors), "")
    return next((reason for start, reason in _REASONS.items() if field.startswith(start)), "Invalid")


def _message(errors: Iterable[Problem]) -> str:
    return "\n".join(f"{each.where.field}: {each.what}" for each in errors) or "the object cannot be parsed"
