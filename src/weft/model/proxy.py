"""What is the proxy's own in every pod: its ports, its user, and the names by which it asks its machine's agent.

Whoever starts, configures, fills or surrounds a proxy reads it here. The numbers are Istio's, so that tools and habits
keep working.
"""

from __future__ import annotations

from typing import Final

ADMIN_PORT: Final = 15000  # on loopback alone
OUTBOUND_PORT: Final = 15001
AGAIN_PORT: Final = 15002  # on loopback alone: where a call that was held goes on as one that has just come
UNKNOWN_PORT: Final = 15003  # on loopback alone: and where it goes on if it is still nobody's then
INBOUND_PORT: Final = 15006
TUNNEL_PORT: Final = 15008
METRICS_PORT: Final = 15020  # the application's and the proxy's, merged
READINESS_PORT: Final = 15021
PROMETHEUS_PORT: Final = 15090  # the proxy's alone

# It listens there, on every address or where everybody wants to: a second listener would be refused.
TAKEN_PORTS: Final = frozenset({OUTBOUND_PORT, AGAIN_PORT, UNKNOWN_PORT, INBOUND_PORT, READINESS_PORT, PROMETHEUS_PORT})
# Of a gateway, which intercepts nothing, these alone are its own.
OWN_PORTS: Final = frozenset({ADMIN_PORT, METRICS_PORT, READINESS_PORT, PROMETHEUS_PORT})
# Callers reach these directly: they are never intercepted.
OPEN_PORTS: Final = (METRICS_PORT, READINESS_PORT, PROMETHEUS_PORT)

# By the port that a held call has come to: how the proxy marks the connection by which it goes on, and the port that
# the pod's rules lead what is marked so to. The marks are code points (DSCP) for local use; no packet leaves with one.
MARKS: Final = {OUTBOUND_PORT: (3, AGAIN_PORT), AGAIN_PORT: (7, UNKNOWN_PORT)}

PROXY_UID: Final = 1337
PROXY_GID: Final = 1337


def published_socket(port: int) -> str:
    """Where a gateway also takes connections to one of its ports, each with a PROXY header: in the directory in which
    it was started. Whoever lets callers of its machine in is there."""
    return f"published-{port}.sock"


SDS_CLUSTER: Final = "sds-grpc"  # in its bootstrap: the agent of its machine
CERTIFICATE: Final = "default"  # what it asks for there: its own chain and key
ROOTS: Final = "ROOTCA"  # and whom to trust
ROOT_CONFIG_MAP: Final = "istio-ca-root-cert"  # the same for everybody, in every namespace of a cluster

GATEWAY_TEMPLATE: Final = "gateway"  # of injection, named by a Pod: the pod is no sidecar's, but a proxy alone

# On Kubernetes the agent's sockets reach a pod through a volume of this driver; names and place are Istio's.
IDENTITY_DRIVER: Final = "csi.weft.dev"
IDENTITY_VOLUME: Final = "workload-socket"
IDENTITY_MOUNT: Final = "/var/run/secrets/workload-spiffe-uds"
SDS_SOCKET: Final = "socket"  # in that volume: the workload's certificate and roots
XDS_SOCKET: Final = "xds"  # in that volume: everything else that the proxy is told
REDIRECT_SOCKET: Final = "redirect"  # and where a pod that may not do so itself asks for its redirect
