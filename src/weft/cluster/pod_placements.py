"""Implements `Placements` on a cluster: the node and group of each pod, from the watch of Pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from weft.kube.pods import PodIndex, PodRecord
from weft.model.group import Group


class PodPlacements:
    def __init__(self, pods: PodIndex) -> None:
        self._pods = pods
        self._nodes, self._followed = _Subscribers(), _Subscribers()
        pods.on_change.append(self._on_change)

    def pods_on(self, node: str) -> Mapping[str, Group] | None:
        return {record.uid: record.group for record in self._pods.on_node(node) if record.proxied}

    def node_of(self, pod_uid: str) -> str | None:
        record = self._pods.by_uid(pod_uid)
        return record.node or None if record is not None else None

    def uid_of(self, namespace: str, pod: str) -> str | None:
        record = self._pods.get(namespace, pod)
        return record.uid if record is not None else None

    def group_of(self, pod_uid: str) -> Group | None:
        record = self._pods.by_uid(pod_uid)
        return record.group if record is not None else None

    def subscribe(self, node: str, changed: Callable[[], None]) -> Callable[[], None]:
        return self._nodes.add(node, changed)

    def follow(self, pod_uid: str, changed: Callable[[], None]) -> Callable[[], None]:
        return self._followed.add(pod_uid, changed)

    def _on_change(self, before: PodRecord | None, after: PodRecord | None) -> None:
        was, now = _placed(before), _placed(after)
        if was != now:  # otherwise the change, such as a new address, does not affect the pod's config
            for node in {place[0] for place in (was, now) if place is not None}:
                self._nodes.notify(node)
        if before is not None and (after is None or (before.uid, before.group) != (after.uid, after.group)):
            self._followed.notify(before.uid)


class _Subscribers:
    """Callbacks, by the name of a node or the UID of a pod."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Callable[[], None]]] = defaultdict(list)

    def add(self, name: str, changed: Callable[[], None]) -> Callable[[], None]:
        self._by_name[name].append(changed)

        def end() -> None:
            callbacks = self._by_name.get(name, [])
            if changed in callbacks:
                callbacks.remove(changed)
            if not callbacks:
                self._by_name.pop(name, None)

        return end

    def notify(self, name: str) -> None:
        for changed in tuple(self._by_name.get(name, ())):
            changed()


def _placed(record: PodRecord | None) -> tuple[str, str, Group] | None:
    return (record.node, record.uid, record.group) if record is not None and record.proxied and record.node else None
