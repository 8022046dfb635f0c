"""Status conditions of the Gateway API's objects: type, reason and message. `kube/gateway_status.py` writes them into
statuses and `analyze/attachments.py` reports them as findings, in one wording."""

from __future__ import annotations

import msgspec

from weft.model.gateway_api import ParentRef, RouteKind
from weft.model.names import ObjectKey, Origin


class StatusCondition(msgspec.Struct, frozen=True):
    """One condition of an object's status, with its type, such as `Accepted`. `holds`: whether the condition's status
    is True. `reason`: a word of the Gateway API, such as `NoMatchingParent`; `message`: the explanation for users."""

    type: str
    holds: bool
    reason: str
    message: str = ""


class BackendFlaw(msgspec.Struct, frozen=True):
    """A backend of a Gateway API route that cannot be used, and why. `rule`: the index of the rule with the backend.
    `line`: the backend's line in the file. `reason` and `message`: those of the ResolvedRefs condition. `host`: the
    backend's host."""

    rule: int
    line: int
    reason: str
    message: str
    host: str


class RouteOutcome(msgspec.Struct, frozen=True):
    """The conditions of one Gateway API route at one of its parents (a Gateway or a Service). `ours`: false if another
    controller writes this status. `flaws`: the backends that cannot be used, which the ResolvedRefs condition
    summarizes."""

    route: ObjectKey
    parent: ParentRef
    conditions: tuple[StatusCondition, ...]
    origin: Origin | None = None
    ours: bool = True
    flaws: tuple[BackendFlaw, ...] = ()


class ListenerOutcome(msgspec.Struct, frozen=True):
    name: str
    kinds: tuple[RouteKind, ...]  # supported route kinds
    attached: int  # number of attached routes
    conditions: tuple[StatusCondition, ...]
    line: int = 0


class PolicyOutcome(msgspec.Struct, frozen=True):
    """The conditions of a BackendTLSPolicy for one Service. `service`: the name of the Service. `host`: its host."""

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
    listener_sets: int = 0  # number of accepted ListenerSets


class ListenerSetOutcome(msgspec.Struct, frozen=True):
    """The conditions of a ListenerSet and of its listeners. `gateway`: the Gateway that it names. `ours`: whether weft
    writes the status of that Gateway."""

    listener_set: ObjectKey
    gateway: ObjectKey
    conditions: tuple[StatusCondition, ...]
    listeners: tuple[ListenerOutcome, ...] = ()
    origin: Origin | None = None
    ours: bool = True


ACCEPTED = StatusCondition("Accepted", holds=True, reason="Accepted", message="weft has accepted it")
RESOLVED = StatusCondition("ResolvedRefs", holds=True, reason="ResolvedRefs", message="all references are resolved")

# A Gateway's status has this condition only while the Gateway does not verify client certificates.
INSECURE_VALIDATION = "InsecureFrontendValidationMode"


def not_accepted(reason: str, message: str) -> StatusCondition:
    return StatusCondition("Accepted", holds=False, reason=reason, message=message)


def unresolved(reason: str, message: str) -> StatusCondition:
    return StatusCondition("ResolvedRefs", holds=False, reason=reason, message=message)
