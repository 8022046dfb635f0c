"""What is known about the clients, for those who ask: who is connected, what each has and has not taken."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import StrEnum

import msgspec

from weft.xds.request import NodeInfo
from weft.xds.response import Dialect
from weft.xds.subscription import Subscription


class Sync(StrEnum):
    SYNCED = "SYNCED"  # everything there is has been answered
    STALE = "STALE"  # something is out or owed
    NOT_SENT = "NOT SENT"  # nothing has been sent, because there is nothing, or because the group has no state yet


class Peer(msgspec.Struct, frozen=True):
    listener: str  # the address of ours that was called: a socket of its own says who may be calling
    address: str
    principal: object = None  # what is known of the caller by its certificate or token, where a listener asks for one


class TypeStatus(msgspec.Struct, frozen=True):
    sync: Sync
    wildcard: bool
    names: int  # asked for by name
    sent: str  # the last response, by its push number
    sent_at: float | None
    settled: int  # the push up to which the client has answered everything
    settled_at: float | None
    behind: int  # the first push after that; 0: none, or none that concerns it
    error: str | None  # the last NACK, until what caused it has gone


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
