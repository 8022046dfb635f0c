"""The kind of an object in its ObjectKey. Two API groups have a kind Gateway: that of the Gateway API has its group
appended, like in kubectl."""

from __future__ import annotations

GATEWAY_API = "gateway.networking.k8s.io"
STANDARD_GATEWAY = f"Gateway.{GATEWAY_API}"


def key_kind(api_version: str, kind: str) -> str:
    """`kind`, or `KIND.GROUP` where another group that weft reads has a kind of the same name."""
    return STANDARD_GATEWAY if kind == "Gateway" and group_of(api_version) == GATEWAY_API else kind


def written_kind(kind: str) -> str:
    """The `kind` as in the object itself."""
    return kind.partition(".")[0]


def group_of(api_version: str) -> str:
    """The API group; "" for the core group."""
    return api_version.rpartition("/")[0]
