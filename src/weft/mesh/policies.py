"""Index of policies by namespace: which policies of one kind apply to a workload. A policy applies to the workloads
that it selects in its own namespace, or in the whole mesh if it is in the root namespace."""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.names import Labels, selects
from weft.model.peer_authentication import PeerAuthentication
from weft.model.policy import GATEWAY_NAME, Policy
from weft.model.request_authentication import RequestAuthentication
from weft.model.telemetry import Telemetry

Kind = TypeVar("Kind", PeerAuthentication, AuthorizationPolicy, RequestAuthentication, Telemetry)


class Policies:
    def __init__(self) -> None:
        self._by_place: dict[tuple[type, str], list[Policy]] = defaultdict(list)

    def add(self, policy: Policy) -> None:
        entries = self._by_place[(type(policy), policy.namespace)]
        entries.append(policy)
        entries.sort(key=age)

    def remove(self, policy: Policy) -> None:
        place = (type(policy), policy.namespace)
        self._by_place[place].remove(policy)
        if not self._by_place[place]:
            del self._by_place[place]

    def of(
        self, kind: type[Kind], namespace: str, labels: Labels, root_namespace: str, *, gateway: bool = False
    ) -> tuple[Kind, ...]:
        """The policies of the type `kind` that select the workload with these labels in this namespace: the root
        namespace's first, the oldest first within a namespace. `gateway`: whether the workload is a gateway. A policy
        whose targetRefs name a Gateway applies only to the proxies of that Gateway."""
        named = f"Gateway {dict(labels).get(GATEWAY_NAME, '')}" if gateway else ""
        places = dict.fromkeys((root_namespace, namespace))
        return tuple(
            policy
            for place in places
            for policy in self._by_place.get((kind, place), ())
            if isinstance(policy, kind) and selects(policy.selector, labels) and _is_for(policy, namespace, named)
        )

    def by_labels(self, kind: type[Kind], namespace: str) -> bool:
        """Whether some policy of this kind and namespace has a selector."""
        return any(policy.selector for policy in self._by_place.get((kind, namespace), ()))


def _is_for(policy: Policy, namespace: str, gateway: str) -> bool:
    targets = () if isinstance(policy, PeerAuthentication) else policy.targets
    return not targets or (gateway in targets and policy.namespace == namespace)


def age(policy: Policy) -> tuple[str, str]:
    """Sort key: the oldest policy first. A policy of unknown age counts as the newest."""
    return (policy.created or "9999", policy.name)
