"""Which DestinationRule decides how a host is called, and for whom.

`mesh.py` owns it. Rule: the caller's namespace is asked first, then the service's, then the root's; in each, a rule for
the host itself comes before ever wider wildcards, and one for callers with certain labels before one for all. Rules of
one namespace for the same host and callers are merged. A BackendTLSPolicy's TLS holds where they say nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.mesh.claims import Claims, patterns
from weft.model.destination_rule import DestinationRule, completed, credentials_of, merged, passes_on
from weft.model.group import Group
from weft.model.locality import asks_where
from weft.model.names import Labels, selects
from weft.model.scope import exported
from weft.model.settings import Settings


class Rules:
    def __init__(self) -> None:
        self._written: Claims[DestinationRule] = Claims()  # by host or wildcard
        self._merged: dict[str, tuple[DestinationRule, ...]] = {}  # by host or wildcard
        self.asking_where = 0  # how many may have callers go to those near them

    def add(self, rule: DestinationRule) -> None:
        self._written.add(rule.host, rule)
        self.asking_where += asks_where(rule)
        self._merge(rule.host)

    def remove(self, rule: DestinationRule) -> None:
        self._written.discard(rule.host, rule)
        self.asking_where -= asks_where(rule)
        self._merge(rule.host)

    def of(self, host: str, owners: Iterable[str], group: Group, settings: Settings) -> DestinationRule | None:
        """For calls of a group to a host. `owners`: the namespaces to ask, in this order."""
        candidates = self._covering(host)
        if not candidates:
            return None
        chosen = [
            rule
            for owner in dict.fromkeys(owners)
            for rule in candidates
            if rule.namespace == owner and _is_for(rule, group, settings)
        ]
        attached = next((rule for rule in chosen if rule.attached), None)
        if attached is None:
            return chosen[0] if chosen else None
        # One for the host itself that stands beside it goes before it, as a written rule always does.
        beside = (rule for rule in chosen if (rule.namespace, rule.host) == (attached.namespace, attached.host))
        written = next((rule for rule in (chosen[0], *beside) if not rule.attached), None)
        return completed(written, attached) if written is not None else attached

    def naming(self, credential: str) -> frozenset[str]:
        """The hosts or wildcards whose rules name a Secret."""
        return frozenset(rule.host for rule in self._written if credential in credentials_of(rule))

    def passes_on(self, host: str) -> bool:
        """Whether some rule has calls to the host go to the very address that the caller wrote."""
        return any(passes_on(rule) for rule in self._covering(host))

    def selects_callers(self, host: str, namespace: str) -> bool:
        """Whether some rule for calls to a host is for those workloads of a namespace alone that have its labels."""
        return any(rule.workload_selector and rule.namespace == namespace for rule in self._covering(host))

    def _covering(self, host: str) -> list[DestinationRule]:
        """Those for the host itself, then for ever wider wildcards."""
        return [rule for pattern in patterns(host) for rule in self._merged.get(pattern, ())]

    def _merge(self, host: str) -> None:
        alike: dict[tuple[str, Labels, tuple[str, ...], bool], list[DestinationRule]] = {}
        for rule in self._written.to(host):
            alike.setdefault((rule.namespace, rule.workload_selector, rule.export_to, rule.attached), []).append(rule)
        found = (merged(rules) for rules in alike.values())
        self._merged[host] = tuple(sorted(found, key=lambda rule: not rule.workload_selector))
        if not alike:
            del self._merged[host]


def _is_for(rule: DestinationRule, group: Group, settings: Settings) -> bool:
    if rule.namespace == group.namespace:
        return selects(rule.workload_selector, group.labels)
    export_to = rule.export_to or settings.destination_rule_export_to
    return not rule.workload_selector and exported(export_to, owner=rule.namespace, viewer=group.namespace)
