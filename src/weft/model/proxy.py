"""What is the proxy's own in every pod: its ports, its user, and the names by which it asks its machine's agent.

Whoever starts, configures, fills or surrounds a proxy reads it here. The numbers are Istio's, so that tools and habits
keep working.
"""

from __future__ import annotations

from typing import Final

ADMIN_PORT: Final = 15000  # on loopback alone
OUTBOUND_PORT: Final = 15001
AGAIN_PORT: Final = 15002  # on loopback alone: where a call that was held goes on as one that has just come
INBOUND_PORT: Final = 15006
TUNNEL_PORT: Final = 15008
METRICS_PORT: Final = 15020  # the application's and the proxy's, merged
READINESS_PORT: Final = 15021
PROMETHEUS_PORT: Final = 15090  # the proxy's alone

# It listens there, on every address or where everybody wants to: a second listener would be refused.
TAKEN_PORTS: Final = frozenset({OUTBOUND_PORT, AGAIN_PORT, INBOUND_PORT, READINESS_PORT, PROMETHEUS_PORT})
# Callers reach these directly: they are never intercepted.
OPEN_PORTS: Final = (METRICS_PORT, READINESS_PORT, PROMETHEUS_PORT)

PROXY_UID: Final = 1337
PROXY_GID: Final = 1337

SDS_CLUSTER: Final = "sds-grpc"  # in its bootstrap: the agent of its machine
CERTIFICATE: Final = "default"  # what it asks for there: its own chain and key
ROOTS: Final = "ROOTCA"  # and whom to trust

# On Kubernetes the agent's sockets reach a pod through a volume of this driver; names and place are Istio's.
IDENTITY_DRIVER: Final = "csi.weft.dev"
IDENTITY_VOLUME: Final = "workload-socket"
IDENTITY_MOUNT: Final = "/var/run/secrets/workload-spiffe-uds"
SDS_SOCKET: Final = "socket"  # in that volume: the workload's certificate and roots
XDS_SOCKET: Final = "xds"  # in that volume: everything else that the proxy is told
REDIRECT_SOCKET: Final = "redirect"  # and where a pod that may not do so itself asks for its redirect
