"""Whom a workload lets in: only peers that prove who they are, anybody, or nobody over TLS."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.names import Labels, Origin


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
