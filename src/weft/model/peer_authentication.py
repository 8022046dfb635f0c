"""Whom a workload lets in: only peers that prove who they are, anybody, or nobody over TLS; and what all the policies
that hold for a workload come to."""

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
    mode: TlsMode | None = None  # None: what the level above says (Istio's UNSET)
    ports: tuple[tuple[int, TlsMode | None], ...] = ()  # of the workload, not of a service
    created: str = ""
    origin: Origin | None = None


class PeerModes(msgspec.Struct, frozen=True):
    """What holds for a workload, and where one of its ports differs."""

    mode: TlsMode = TlsMode.PERMISSIVE
    ports: tuple[tuple[int, TlsMode], ...] = ()
    sources: tuple[ObjectKey, ...] = ()  # the policies that say so, the widest first

    def at(self, port: int) -> TlsMode:
        for number, mode in self.ports:
            if number == port:
                return mode
        return self.mode


def peer_modes(policies: Iterable[PeerAuthentication], root_namespace: str) -> PeerModes:
    """Of the policies that select one workload, the oldest first within a namespace. The narrower level wins: mesh,
    namespace, workload, port; within a level the oldest. As in Istio, a selector in the root namespace selects nobody,
    and only a workload's policy has ports."""
    levels = _levels(policies, root_namespace)
    mode = TlsMode.PERMISSIVE
    for level in levels:
        mode = level.mode or mode
    ports = tuple((number, written or mode) for number, written in _ports(levels))
    return PeerModes(mode, ports, tuple(level.origin.key for level in levels if level.origin is not None))


def decider(policies: Iterable[PeerAuthentication], root_namespace: str, port: int = 0) -> PeerAuthentication | None:
    """Which of these policies decides at a port, or in general; None where nobody says anything."""
    levels = _levels(policies, root_namespace)
    if port and dict(_ports(levels)).get(port) is not None:
        return levels[-1]
    return next((level for level in reversed(levels) if level.mode is not None), None)


def _levels(policies: Iterable[PeerAuthentication], root_namespace: str) -> list[PeerAuthentication]:
    """The one of the mesh, of the namespace and of the workload, as far as there are any."""
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
