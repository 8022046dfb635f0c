"""The kinds of objects that apply to the workloads they select: in the object's namespace, or in the whole mesh if
the object is in the root namespace."""

from __future__ import annotations

from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.peer_authentication import PeerAuthentication
from weft.model.request_authentication import RequestAuthentication
from weft.model.telemetry import Telemetry

# The Gateway API's label on the proxies of a Gateway.
GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"

Policy = PeerAuthentication | AuthorizationPolicy | RequestAuthentication | Telemetry
