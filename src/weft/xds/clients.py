"""Status of the connected clients: for each resource type, what was sent, acknowledged and rejected."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import StrEnum

import msgspec

from weft.xds.request import NodeInfo
from weft.xds.response import Dialect
from weft.xds.subscription import Subscription


class Sync(StrEnum):
    SYNCED = "SYNCED"  # the client has acknowledged all changes
    STALE = "STALE"  # some change is not sent or not acknowledged
    NOT_SENT = "NOT SENT"  # nothing has been sent: there are no resources, or the group has no state yet


class Peer(msgspec.Struct, frozen=True):
    listener: str  # address of the server that the client connected to; a pod's own socket identifies the pod
    address: str
    principal: object = None  # from the caller's certificate or token, if the listener requires authentication


class TypeStatus(msgspec.Struct, frozen=True):
    sync: Sync
    wildcard: bool
    names: int  # number of names that the client subscribed to explicitly
    sent: str  # push number of the last response
    sent_at: float | None
    settled: int  # the client has acknowledged all changes up to this push number
    settled_at: float | None
    behind: int  # the first push after `settled` with a change for the client; 0: none
    error: str | None  # error message of the last NACK; None once the rejected resource is replaced or accepted


class StreamStatus(msgspec.Struct, frozen=True):
    stream_id: int
    node: NodeInfo
    group: Hashable
    peer: Peer
    dialect: Dialect
    since: float
    types: Mapping[str, TypeStatus]


def type_status(subscription: Subscription, *, settled: bool) -> TypeStatus:
    sync = Sync.SYNCED if settled else Sync.STALE
    return TypeStatus(
        sync=sync if subscription.nonce or (settled and subscription.had) else Sync.NOT_SENT,
        wildcard=subscription.wildcard,
        names=len(subscription.names),
        sent=subscription.nonce,
        sent_at=subscription.sent_at,
        settled=subscription.settled,
        settled_at=subscription.settled_at,
        behind=0 if settled else subscription.behind,
        error=subscription.error,
    )
