"""Computes the kind in an object's ObjectKey. Two API groups have a kind Gateway, so the Gateway API's kind gets its
group appended, as in kubectl: `Gateway.gateway.networking.k8s.io`."""

from __future__ import annotations

GATEWAY_API = "gateway.networking.k8s.io"
STANDARD_GATEWAY = f"Gateway.{GATEWAY_API}"


def key_kind(api_version: str, kind: str) -> str:
    """Return the kind for the ObjectKey of an object with this `apiVersion` and `kind`: `kind`, or `KIND.GROUP` if weft
    also reads a kind of the same name from another API group."""
    return STANDARD_GATEWAY if kind == "Gateway" and group_of(api_version) == GATEWAY_API else kind


def written_kind(kind: str) -> str:
    """Return the `kind` field that the object itself has: the kind of an ObjectKey without the group."""
    return kind.partition(".")[0]


def group_of(api_version: str) -> str:
    """Return the API group of an apiVersion; "" for the core group."""
    return api_version.rpartition("/")[0]
