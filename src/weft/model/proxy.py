"""Constants of the proxy in every pod: its reserved ports, its user, and the names of the SDS and xDS resources that
it gets from the node agent.

All code that starts or configures a proxy uses them. The numbers are Istio's, so that tools for Istio keep working.
"""

from __future__ import annotations

from typing import Final

ADMIN_PORT: Final = 15000  # on loopback only
OUTBOUND_PORT: Final = 15001
AGAIN_PORT: Final = 15002  # on loopback only: receives a held call again, once its config has arrived
UNKNOWN_PORT: Final = 15003  # on loopback only: receives a held call if no service has its address even then
INBOUND_PORT: Final = 15006
TUNNEL_PORT: Final = 15008
METRICS_PORT: Final = 15020  # metrics of the application and the proxy, merged
READINESS_PORT: Final = 15021
PROMETHEUS_PORT: Final = 15090  # metrics of the proxy only

# A sidecar listens on these; Envoy would reject a second listener on the same port.
TAKEN_PORTS: Final = frozenset({OUTBOUND_PORT, AGAIN_PORT, UNKNOWN_PORT, INBOUND_PORT, READINESS_PORT, PROMETHEUS_PORT})
# A gateway intercepts nothing, so only these ports are reserved in a gateway.
OWN_PORTS: Final = frozenset({ADMIN_PORT, METRICS_PORT, READINESS_PORT, PROMETHEUS_PORT})
# Callers reach these ports directly: they are never intercepted.
OPEN_PORTS: Final = (METRICS_PORT, READINESS_PORT, PROMETHEUS_PORT)

# By the port where a held call arrived: the mark that the proxy sets on the connection that continues it, and the port
# to which the pod's iptables rules redirect marked connections. The marks are DSCP code points for local use; no packet
# leaves the pod with one.
MARKS: Final = {OUTBOUND_PORT: (3, AGAIN_PORT), AGAIN_PORT: (7, UNKNOWN_PORT)}

PROXY_UID: Final = 1337
PROXY_GID: Final = 1337


def published_socket(port: int) -> str:
    """The Unix socket on which a gateway also accepts connections to one of its ports, each with a PROXY header. It is
    in the gateway's working directory. The Envoy that publishes the ports of gateways on the machine
    (`local/front_door.py`) connects to it."""
    return f"published-{port}.sock"


SDS_CLUSTER: Final = "sds-grpc"  # cluster of the node agent in the proxy's bootstrap
CERTIFICATE: Final = "default"  # SDS resource: the proxy's certificate chain and key
ROOTS: Final = "ROOTCA"  # SDS resource: the root certificates to trust
ROOT_CONFIG_MAP: Final = "istio-ca-root-cert"  # the root certificates, in every namespace of a cluster

GATEWAY_TEMPLATE: Final = "gateway"  # injection template named by a Pod: the pod is a gateway, not a workload

# On Kubernetes, the node agent's sockets are mounted into a pod through a volume of this CSI driver. Volume name and
# mount path are Istio's.
IDENTITY_DRIVER: Final = "csi.weft.dev"
IDENTITY_VOLUME: Final = "workload-socket"
IDENTITY_MOUNT: Final = "/var/run/secrets/workload-spiffe-uds"
SDS_SOCKET: Final = "socket"  # in that volume: the workload's certificate and roots
XDS_SOCKET: Final = "xds"  # in that volume: all other config of the proxy
REDIRECT_SOCKET: Final = "redirect"  # in that volume: a pod without the privileges requests its traffic redirect here

# The filter that keeps the method and the status of upgrades between proxies (`translate/upgrades.py`), and the header
# in which the method is sent.
UPGRADE_FILTER = "weft.filters.http.upgrade"
UPGRADE_METHOD = "x-weft-upgrade-method"
