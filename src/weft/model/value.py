"""Value: the union of all types of values that an object can be parsed into."""

from __future__ import annotations

from collections.abc import Callable

from weft.model.credential import Credential
from weft.model.destination_rule import DestinationRule
from weft.model.endpoint_slice import EndpointSlice
from weft.model.gateway import Gateway
from weft.model.gateway_api import (
    AuthorityBundle,
    BackendTls,
    GatewayClass,
    ListenerSet,
    ReferenceGrant,
    StandardGateway,
    StandardRoute,
)
from weft.model.instance import Instance
from weft.model.policy import Policy
from weft.model.service import Service
from weft.model.settings import Namespace, ServiceAccount, Settings
from weft.model.sidecar import Sidecar
from weft.model.virtual_service import VirtualService
from weft.model.workload import Workload

Value = (
    Service
    | Instance
    | EndpointSlice
    | VirtualService
    | DestinationRule
    | Sidecar
    | Gateway
    | Credential
    | Workload
    | Namespace
    | ServiceAccount
    | Settings
    | Policy
    | StandardRoute
    | ListenerSet
    | StandardGateway
    | GatewayClass
    | ReferenceGrant
    | BackendTls
    | AuthorityBundle
)

# Completes a value before it is added to the mesh, for example with an address that the Service's manifest does not
# have.
Admit = Callable[[Value], Value]


def as_it_is(value: Value) -> Value:
    """Return the value unchanged: the default for an `Admit` function, which completes a value before it is added to
    the mesh."""
    return value
