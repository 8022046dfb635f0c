"""Converts pods into Instances of the model, and keeps an index of all pods by name, uid and node.

`source.py` passes the pods of the watch; the results are an Instance for the model and a PodRecord for the index.
Rule: a pod's identity comes from here only, never from what its proxy claims. A pod that has ended counts as
deleted, because its address may already belong to another pod.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from sys import intern

import msgspec

from weft.kube.objects import ContainerObject, PodObject
from weft.model.group import Group, ProxyKind
from weft.model.instance import Instance
from weft.model.locality import LOCALITY_LABEL
from weft.model.names import Labels, ObjectKey, Origin

_PROXY = "istio-proxy"
_OVER = frozenset({"Succeeded", "Failed"})
_NETWORK_LABEL = "topology.istio.io/network"
_SCHEDULED_JOB = re.compile(r"-\d{8,11}$")  # the suffix that a CronJob adds to the names of its Jobs


class PodRecord(msgspec.Struct, frozen=True):
    """An entry of the pod index: a pod's identity, group, node and addresses. `meshed`: a sidecar intercepts its
    traffic."""

    namespace: str
    name: str
    uid: str
    group: Group
    node: str = ""  # "": not scheduled yet
    addresses: tuple[str, ...] = ()
    meshed: bool = False
    host_network: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def proxied(self) -> bool:
        """Whether the pod has a sidecar of the mesh or is a gateway."""
        return self.meshed or self.group.kind is ProxyKind.GATEWAY


OnChange = Callable[[PodRecord | None, PodRecord | None], None]  # before, after; None: no such pod


class PodIndex:
    """Index of all pods by name, uid and node. The callbacks in `on_change` are called on each change. Only the
    control plane's event loop uses it."""

    def __init__(self) -> None:
        self.on_change: list[OnChange] = []
        self._by_name: dict[tuple[str, str], PodRecord] = {}
        self._by_uid: dict[str, PodRecord] = {}
        self._by_node: dict[str, dict[tuple[str, str], PodRecord]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self._by_name.values())

    def get(self, namespace: str, name: str) -> PodRecord | None:
        return self._by_name.get((namespace, name))

    def by_uid(self, uid: str) -> PodRecord | None:
        return self._by_uid.get(uid)

    def on_node(self, node: str) -> tuple[PodRecord, ...]:
        return tuple(self._by_node.get(node, {}).values())

    def put(self, record: PodRecord) -> None:
        """Add or replace a pod; a pod of the same name with another uid replaces the previous one."""
        before = self._by_name.get(record.key)
        if before == record:
            return
        self._forget(before)
        self._by_name[record.key] = record
        self._by_uid[record.uid] = record
        if record.node:
            self._by_node[record.node][record.key] = record
        self._tell(before, record)

    def discard(self, namespace: str, name: str) -> None:
        before = self._by_name.get((namespace, name))
        if before is not None:
            self._forget(before)
            self._tell(before, None)

    def _forget(self, record: PodRecord | None) -> None:
        if record is None:
            return
        del self._by_name[record.key]
        self._by_uid.pop(record.uid, None)
        if record.node:
            here = self._by_node[record.node]
            del here[record.key]
            if not here:
                del self._by_node[record.node]

    def _tell(self, before: PodRecord | None, after: PodRecord | None) -> None:
        for tell in tuple(self.on_change):
            tell(before, after)


def is_over(pod: PodObject) -> bool:
    return pod.status.phase in _OVER


def record_of(pod: PodObject, node_locality: str = "") -> PodRecord:
    labels = kept_labels(pod.metadata.labels)
    locality = _value(labels, LOCALITY_LABEL).replace(".", "/") or node_locality
    return PodRecord(
        namespace=intern(pod.metadata.namespace),
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        group=_group(_kind(pod), pod.metadata.namespace, labels, _account(pod), locality),
        node=intern(pod.spec.node_name),
        addresses=_addresses(pod),
        meshed=_is_meshed(pod),
        host_network=pod.spec.host_network,
    )


def instance_of(pod: PodObject, record: PodRecord) -> Instance:
    """Return the pod as an Instance of the model. `record`: its entry of the pod index. The protocols of container
    ports are ignored: a Service declares the protocols of its ports."""
    annotations = pod.metadata.annotations
    included = annotations.include_inbound if annotations else None
    labels = record.group.labels
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())
    return Instance(
        name=record.name,
        namespace=record.namespace,
        addresses=record.addresses,
        labels=labels,
        service_account=record.group.service_account,
        ports=_named_ports(pod),
        ready=ready and pod.metadata.deletion_timestamp is None,
        meshed=record.meshed,
        gateway=record.group.kind is ProxyKind.GATEWAY,
        included_ports=None if included is None or "*" in included else _numbers(included),
        excluded_ports=_numbers(annotations.exclude_inbound) if annotations and annotations.exclude_inbound else (),
        locality=record.group.locality,
        network=_value(labels, _NETWORK_LABEL),
        workload=workload_of(pod),
        by_slice=True,
        origin=Origin(ObjectKey("Pod", record.namespace, record.name)),
    )


def kept_labels(labels: Mapping[str, str] | None) -> Labels:
    """Return the labels in the model's form. Equal label sets and strings are shared between objects, to save
    memory."""
    if not labels:
        return ()
    return _same(tuple(sorted(labels.items())))


@lru_cache(maxsize=65_536)
def _same(labels: Labels) -> Labels:
    return tuple((intern(name), intern(value)) for name, value in labels)


@lru_cache(maxsize=16_384)
def _group(kind: ProxyKind, namespace: str, labels: Labels, account: str, locality: str) -> Group:
    return Group(kind, intern(namespace), labels, intern(account), intern(locality))


def _account(pod: PodObject) -> str:
    return pod.spec.service_account_name or "default"


def _kind(pod: PodObject) -> ProxyKind:
    """Return the kind of the pod's proxy. A pod is a gateway if the node id in its proxy's bootstrap, which the
    injector wrote, is a gateway's. Gateways get private keys, so this is decided only by fields that cannot be changed
    in an existing Pod; annotations and labels can be changed."""
    started = (
        each
        for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        if container.name == _PROXY
        for each in container.args or ()
    )
    return ProxyKind.GATEWAY if any(map(_is_router, started)) else ProxyKind.SIDECAR


class _Node(msgspec.Struct, frozen=True):
    id: str = ""


class _Bootstrap(msgspec.Struct, frozen=True):
    node: _Node = _Node()


def _is_router(argument: str) -> bool:
    wanted = f"{ProxyKind.GATEWAY}~"
    if wanted not in argument:  # true for nearly all pods; their bootstrap need not be parsed
        return False
    try:
        return msgspec.json.decode(argument, type=_Bootstrap).node.id.startswith(wanted)
    except msgspec.MsgspecError:
        return False


def _is_meshed(pod: PodObject) -> bool:
    """Whether a sidecar intercepts the pod's traffic. Never for a hostNetwork pod, whatever containers it has. Never
    for a gateway, although it has a proxy: callers would otherwise use the mesh's TLS to a port of the gateway that may
    be plain HTTP."""
    if pod.spec.host_network or _kind(pod) is ProxyKind.GATEWAY:
        return False
    if pod.metadata.annotations is not None and pod.metadata.annotations.injected is not None:
        return True
    return any(each.name == _PROXY for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())))


def _addresses(pod: PodObject) -> tuple[str, ...]:
    several = tuple(each.ip for each in pod.status.pod_ips or () if each.ip)
    return several or ((pod.status.pod_ip,) if pod.status.pod_ip else ())


def _named_ports(pod: PodObject) -> tuple[tuple[str, int], ...]:
    """Return the name and number of each named TCP port of the pod. If several containers use the same port name, the
    first container's port is used."""
    ports: dict[str, int] = {}
    for container in (*(pod.spec.containers or ()), *filter(_stays, pod.spec.init_containers or ())):
        for port in container.ports or ():
            if port.name and port.protocol == "TCP":
                ports.setdefault(port.name, port.container_port)
    return _same_ports(tuple(sorted(ports.items())))


@lru_cache(maxsize=16_384)
def _same_ports(ports: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    return tuple((intern(name), number) for name, number in ports)


def _stays(container: ContainerObject) -> bool:
    return container.restart_policy == "Always"  # a native sidecar, which keeps running


def _numbers(written: str) -> tuple[int, ...]:
    """Return the port numbers in `written`, the comma-separated value of an annotation. Invalid numbers are skipped,
    since injection rejects them."""
    parts = (part.strip() for part in written.split(","))
    return tuple(int(part) for part in parts if part.isdecimal() and 0 < int(part[:6]) <= 65_535)


def _value(labels: Labels, wanted: str) -> str:
    return next((value for name, value in labels if name == wanted), "")


def workload_of(pod: PodObject) -> str:
    """Return the name of the pod's workload: the Deployment of a ReplicaSet, the CronJob of a Job."""
    owner = next((each for each in pod.metadata.owner_references or () if each.controller), None)
    if owner is None:
        return pod.metadata.name
    if owner.kind == "ReplicaSet":
        return intern(owner.name.removesuffix("-" + (pod.metadata.labels or {}).get("pod-template-hash", "")))
    return intern(_SCHEDULED_JOB.sub("", owner.name) if owner.kind == "Job" else owner.name)
