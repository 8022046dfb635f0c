"""Which pods are on which node, by the watch of Pods: `Placements`, as a cluster has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from weft.kube.pods import PodRecord, Pods
from weft.model.group import Group


class PodPlacements:
    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._subscribers: dict[str, list[Callable[[], None]]] = defaultdict(list)
        pods.on_change.append(self._on_change)

    def pods_on(self, node: str) -> Mapping[str, Group] | None:
        return {record.uid: record.group for record in self._pods.on_node(node) if record.meshed}

    def node_of(self, pod_uid: str) -> str | None:
        record = self._pods.by_uid(pod_uid)
        return record.node or None if record is not None else None

    def subscribe(self, node: str, changed: Callable[[], None]) -> Callable[[], None]:
        self._subscribers[node].append(changed)

        def unsubscribe() -> None:
            listening = self._subscribers.get(node, [])
            if changed in listening:
                listening.remove(changed)
            if not listening:
                self._subscribers.pop(node, None)

        return unsubscribe

    def _on_change(self, before: PodRecord | None, after: PodRecord | None) -> None:
        was, now = _placed(before), _placed(after)
        if was == now:
            return  # its address, say: nothing that says what it is served
        for node in {place[0] for place in (was, now) if place is not None}:
            for changed in tuple(self._subscribers.get(node, ())):
                changed()


def _placed(record: PodRecord | None) -> tuple[str, str, Group] | None:
    return (record.node, record.uid, record.group) if record is not None and record.meshed and record.node else None
