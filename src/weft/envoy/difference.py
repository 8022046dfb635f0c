"""Compares the config that a proxy was sent with the config that it has.

Input: two config dumps in Envoy's format. Output: every resource that differs, with the fields that differ. Rule:
values that Envoy adds or reformats are no difference: the health of endpoints, endpoints of clusters without EDS,
and the notation of numbers. Clusters for on-demand calls are ignored too, because only some proxies of a group have
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.translate.names import HOLD

KINDS = ("Clusters", "Listeners", "Routes", "Endpoints")
_MOST_PLACES = 20  # fields of one resource; with more, the whole resource must be read anyway

Dump = Mapping[str, Any]


class DifferentField(msgspec.Struct, frozen=True):
    path: str
    sent: Any = None  # None: the field was not sent
    has: Any = None  # None: Envoy does not have the field


class ResourceDifference(msgspec.Struct, frozen=True):
    kind: str  # one of KINDS
    name: str
    what: str  # "missing" at Envoy, "unknown" to the control plane, or "other"
    places: tuple[DifferentField, ...] = ()
    note: str = ""  # the state of the resource in Envoy, such as warming or rejected


def differences(sent: Dump, has: Dump) -> list[ResourceDifference]:
    """Return the resources in which the config that was sent (`sent`) and the config that the proxy has (`has`)
    differ, in the order of KINDS, then by name."""
    result = []
    for kind, read in zip(KINDS, (_clusters, _listeners, _routes, _endpoints), strict=True):
        ours, theirs = read(sent), read(has)
        notes = _notes(kind, has)
        for name in sorted(ours.keys() | theirs.keys()):
            if kind == KINDS[0] and name.startswith(HOLD):
                continue
            difference = _difference(kind, name, ours.get(name), theirs.get(name), notes.get(name, ""))
            if difference is not None:
                result.append(difference)
    return result


def _difference(kind: str, name: str, sent: Any, has: Any, note: str) -> ResourceDifference | None:
    if has is None or sent is None:
        return ResourceDifference(kind, name, "missing" if has is None else "unknown", (), note)
    places = []
    for place in _places("", sent, has):
        places.append(place)
        if len(places) == _MOST_PLACES:
            break
    return ResourceDifference(kind, name, "other", tuple(places), note) if places else None


def _places(path: str, sent: Any, has: Any) -> Iterator[DifferentField]:
    if isinstance(sent, dict) and isinstance(has, dict):
        for key in sorted(sent.keys() | has.keys()):
            yield from _places(f"{path}.{key}" if path else key, sent.get(key), has.get(key))
    elif isinstance(sent, list) and isinstance(has, list):
        for index in range(max(len(sent), len(has))):
            ours = sent[index] if index < len(sent) else None
            theirs = has[index] if index < len(has) else None
            yield from _places(f"{path}[{index}]", ours, theirs)
    elif sent != has and not _same_number(sent, has):
        yield DifferentField(path, sent, has)


def _same_number(first: Any, second: Any) -> bool:
    """Return whether the values `first` and `second` are the same number. In a typed_struct, weft writes a number where
    Envoy writes a string."""
    try:
        return (
            not isinstance(first, bool | None) and not isinstance(second, bool | None) and float(first) == float(second)
        )
    except (TypeError, ValueError):
        return False


def _clusters(dump: Dump) -> dict[str, Any]:
    clusters = _items(dump, "ClustersConfigDump", "dynamic_active_clusters")
    return {each["cluster"]["name"]: each["cluster"] for each in clusters if "cluster" in each}


def _listeners(dump: Dump) -> dict[str, Any]:
    listeners = _items(dump, "ListenersConfigDump", "dynamic_listeners")
    return {
        each["name"]: each["active_state"]["listener"]
        for each in listeners
        if "listener" in each.get("active_state", {})
    }


def _routes(dump: Dump) -> dict[str, Any]:
    routes = _items(dump, "RoutesConfigDump", "dynamic_route_configs")
    return {each["route_config"]["name"]: each["route_config"] for each in routes if "route_config" in each}


def _endpoints(dump: Dump) -> dict[str, Any]:
    """Return, by the name of each EDS cluster, its endpoints with their weight, sorted by address and locality."""
    sent = {name for name, cluster in _clusters(dump).items() if cluster.get("type") == "EDS"}
    endpoints = {}
    for each in _items(dump, "EndpointsConfigDump", "dynamic_endpoint_configs"):
        assignment = each.get("endpoint_config", {})
        if assignment.get("cluster_name") in sent:
            endpoints[assignment["cluster_name"]] = dict(sorted(_answering(assignment)))
    return endpoints


def _answering(assignment: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for group in assignment.get("endpoints", ()):
        place = {"locality": group.get("locality", {}), "priority": group.get("priority", 0)}
        for each in group.get("lb_endpoints", ()):
            address = each.get("endpoint", {}).get("address", {})
            socket = address.get("socket_address", {})
            where = f"{socket.get('address')}:{socket.get('port_value')}" if socket else str(address)
            # The same address may occur in several localities of a priority.
            yield f"{where} {msgspec.json.encode(place).decode()}", {"weight": each.get("load_balancing_weight", 1)}


def _notes(kind: str, dump: Dump) -> dict[str, str]:
    notes = {}
    if kind == "Clusters":
        for each in _items(dump, "ClustersConfigDump", "dynamic_warming_clusters"):
            notes[each.get("cluster", {}).get("name", "")] = "Envoy is still warming another version of the resource"
    if kind == "Listeners":
        for each in _items(dump, "ListenersConfigDump", "dynamic_listeners"):
            if "error_state" in each:
                notes[each["name"]] = (
                    f"Envoy rejected another version of the resource: {each['error_state'].get('details', '')}"
                )
            elif "warming_state" in each:
                notes[each["name"]] = "Envoy is still warming another version of the resource"
    return notes


def _items(dump: Dump, section: str, key: str) -> Iterator[dict[str, Any]]:
    for each in dump.get("configs", ()):
        if str(each.get("@type", "")).endswith(f".{section}"):
            yield from each.get(key, ())
