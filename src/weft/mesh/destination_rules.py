"""Index of DestinationRules: which rule applies to a group's calls to a host. `mesh.py` owns it.

Rule: the caller's namespace is searched first, then the service's, then the root namespace. In each namespace, a
rule for the host itself comes before wildcards (the narrowest first), and a rule with a workloadSelector before a
rule for all callers. Rules of one namespace for the same host and callers are merged. The TLS of a BackendTLSPolicy
applies where these rules set no TLS.
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
        self._written: Claims[DestinationRule] = Claims()  # all rules, by host or wildcard
        self._merged: dict[str, tuple[DestinationRule, ...]] = {}  # merged rules, by host or wildcard
        self.asking_where = 0  # number of rules that may use locality load balancing

    def add(self, rule: DestinationRule) -> None:
        self._written.add(rule.host, rule)
        self.asking_where += asks_where(rule)
        self._merge(rule.host)

    def remove(self, rule: DestinationRule) -> None:
        self._written.discard(rule.host, rule)
        self.asking_where -= asks_where(rule)
        self._merge(rule.host)

    def of(self, host: str, owners: Iterable[str], group: Group, settings: Settings) -> DestinationRule | None:
        """The rule for a group's calls to a host; None if no rule applies. `owners`: the namespaces to search, in this
        order. `settings`: those of the mesh, which have the default of `exportTo`."""
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
        # A DestinationRule for the same host in the same namespace takes precedence over a BackendTLSPolicy.
        beside = (rule for rule in chosen if (rule.namespace, rule.host) == (attached.namespace, attached.host))
        written = next((rule for rule in (chosen[0], *beside) if not rule.attached), None)
        return completed(written, attached) if written is not None else attached

    def naming(self, credential: str) -> frozenset[str]:
        """The hosts and wildcards whose rules name the Secret `credential`."""
        return frozenset(rule.host for rule in self._written if credential in credentials_of(rule))

    def of_policies(self) -> frozenset[str]:
        """The hosts of BackendTLSPolicies."""
        return frozenset(rule.host for rule in self._written if rule.attached)

    def passes_on(self, host: str) -> bool:
        """Whether some rule for the host, or for a wildcard that covers it, sends calls to the original destination
        address (PASSTHROUGH)."""
        return any(passes_on(rule) for rule in self._covering(host))

    def selects_callers(self, host: str, namespace: str) -> bool:
        """Whether some rule of a namespace for this host has a workloadSelector."""
        return any(rule.workload_selector and rule.namespace == namespace for rule in self._covering(host))

    def _covering(self, host: str) -> list[DestinationRule]:
        """Rules for the host itself, then for wildcards from the narrowest to the widest."""
        return [rule for pattern in patterns(host) for rule in self._merged.get(pattern, ())]

    def _merge(self, host: str) -> None:
        alike: dict[tuple[str, Labels, tuple[str, ...], bool], list[DestinationRule]] = {}
        for rule in self._written.to(host):
            alike.setdefault((rule.namespace, rule.workload_selector, rule.export_to, rule.attached), []).append(rule)
        rules = (merged(group) for group in alike.values())
        self._merged[host] = tuple(sorted(rules, key=lambda rule: not rule.workload_selector))
        if not alike:
            del self._merged[host]


def _is_for(rule: DestinationRule, group: Group, settings: Settings) -> bool:
    if rule.namespace == group.namespace:
        return selects(rule.workload_selector, group.labels)
    export_to = rule.export_to or settings.destination_rule_export_to
    return not rule.workload_selector and exported(export_to, owner=rule.namespace, viewer=group.namespace)
