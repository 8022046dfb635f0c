"""PeerAuthentication: whether a workload accepts only mutual TLS, also plaintext, or no TLS. Also computes the
effective modes of all policies that select a workload."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from weft.model.names import Labels, ObjectKey, Origin


class TlsMode(StrEnum):
    STRICT = "STRICT"
    PERMISSIVE = "PERMISSIVE"
    DISABLE = "DISABLE"


class PeerAuthentication(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    selector: Labels = ()
    mode: TlsMode | None = None  # None: inherited from the level above (Istio's UNSET)
    ports: tuple[tuple[int, TlsMode | None], ...] = ()  # port numbers of the workload, not of a service
    created: str = ""
    origin: Origin | None = None


class PeerModes(msgspec.Struct, frozen=True):
    """The effective mTLS mode of a workload, and the modes of its ports that have a mode of their own. `sources`: the
    PeerAuthentications of the mesh, the namespace and the workload that were combined, in this order."""

    mode: TlsMode = TlsMode.PERMISSIVE
    ports: tuple[tuple[int, TlsMode], ...] = ()
    sources: tuple[ObjectKey, ...] = ()

    def at(self, port: int) -> TlsMode:
        for number, mode in self.ports:
            if number == port:
                return mode
        return self.mode


def peer_modes(policies: Iterable[PeerAuthentication], root_namespace: str) -> PeerModes:
    """The effective modes of a workload. `policies`: those that select it, the oldest first within a namespace. A
    port's mode overrides the workload's, which overrides the namespace's, which overrides the mesh's; within a
    level the oldest policy decides. As in Istio, a policy with a selector in the root namespace selects nothing,
    and only a workload's policy has ports."""
    levels = _levels(policies, root_namespace)
    mode = TlsMode.PERMISSIVE
    for level in levels:
        mode = level.mode or mode
    ports = tuple((number, written or mode) for number, written in _ports(levels))
    return PeerModes(mode, ports, tuple(level.origin.key for level in levels if level.origin is not None))


def decider(policies: Iterable[PeerAuthentication], root_namespace: str, port: int = 0) -> PeerAuthentication | None:
    """The policy that decides the mTLS mode at a port of a workload, or, with port 0, the mode of the workload as a
    whole; None if no policy sets a mode. `policies`: those that select the workload, the oldest first within a
    namespace. `root_namespace`: the namespace whose policies apply to the whole mesh."""
    levels = _levels(policies, root_namespace)
    if port and dict(_ports(levels)).get(port) is not None:
        return levels[-1]
    return next((level for level in reversed(levels) if level.mode is not None), None)


def _levels(policies: Iterable[PeerAuthentication], root_namespace: str) -> list[PeerAuthentication]:
    """The policy that decides at each level, in this order: the mesh, the namespace, the workload. The first policy of
    a level decides. A level without a policy is left out. `policies`: those that select the workload, the oldest first
    within a namespace. `root_namespace`: the namespace whose policies apply to the whole mesh."""
    mesh = namespace = workload = None
    for policy in policies:
        if not policy.selector and policy.namespace == root_namespace:
            mesh = mesh or policy
        elif not policy.selector:
            namespace = namespace or policy
        elif policy.namespace != root_namespace:
            workload = workload or policy
    return [level for level in (mesh, namespace, workload) if level is not None]


def _ports(levels: list[PeerAuthentication]) -> tuple[tuple[int, TlsMode | None], ...]:
    narrowest = levels[-1] if levels else None
    return narrowest.ports if narrowest is not None and narrowest.selector else ()
