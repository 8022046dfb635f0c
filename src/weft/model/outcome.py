"""What became of the Gateway API's objects, in the standard's own words: conditions with a reason and a message. They
are written into statuses (`kube/gateway_status.py`) and told as findings (`analyze/attachments.py`), in one wording."""

from __future__ import annotations

import msgspec

from weft.model.gateway_api import ParentRef, RouteKind
from weft.model.names import ObjectKey, Origin


class StatusCondition(msgspec.Struct, frozen=True):
    """One condition of an object."""

    type: str
    holds: bool
    reason: str
    message: str = ""


class BackendFlaw(msgspec.Struct, frozen=True):
    """A backend of a route that nothing can be sent to."""

    rule: int  # among the route's rules
    line: int
    reason: str
    message: str
    host: str


class RouteOutcome(msgspec.Struct, frozen=True):
    """Of one route at one of its parents."""

    route: ObjectKey
    parent: ParentRef
    conditions: tuple[StatusCondition, ...]
    origin: Origin | None = None
    ours: bool = True  # else it is for somebody else to say in its status
    flaws: tuple[BackendFlaw, ...] = ()  # of which the conditions tell in one


class ListenerOutcome(msgspec.Struct, frozen=True):
    name: str
    kinds: tuple[RouteKind, ...]  # that can be attached
    attached: int  # how many routes are
    conditions: tuple[StatusCondition, ...]
    line: int = 0


class PolicyOutcome(msgspec.Struct, frozen=True):
    """Of a BackendTLSPolicy for one Service."""

    policy: ObjectKey
    service: str
    host: str  # of the service
    conditions: tuple[StatusCondition, ...]
    origin: Origin | None = None


class GatewayOutcome(msgspec.Struct, frozen=True):
    gateway: ObjectKey
    conditions: tuple[StatusCondition, ...]
    listeners: tuple[ListenerOutcome, ...] = ()
    origin: Origin | None = None


ACCEPTED = StatusCondition("Accepted", holds=True, reason="Accepted", message="weft acts on it")
RESOLVED = StatusCondition("ResolvedRefs", holds=True, reason="ResolvedRefs", message="everybody it names is there")


def not_accepted(reason: str, message: str) -> StatusCondition:
    return StatusCondition("Accepted", holds=False, reason=reason, message=message)


def unresolved(reason: str, message: str) -> StatusCondition:
    return StatusCondition("ResolvedRefs", holds=False, reason=reason, message=message)
