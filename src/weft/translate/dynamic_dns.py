"""Builds Envoy's dynamic forward proxy for wildcard services with `resolution: DYNAMIC_DNS`: the proxy resolves the
name that each request (Host) or TLS connection (SNI) has, and calls that address.

For HTTP the cluster resolves the name, and the port is the one in the Host header, else 80 (443 with TLS). tcp_proxy
cannot wait for the cluster, so a network filter before it resolves the SNI; it needs the same DNS cache as the cluster.
"""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.extensions.clusters.dynamic_forward_proxy.v3.cluster_pb2 import ClusterConfig
from envoy.extensions.common.dynamic_forward_proxy.v3.dns_cache_pb2 import DnsCacheConfig
from envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.sni_dynamic_forward_proxy_pb2 import FilterConfig

from weft.translate.protos import packed

CLUSTER = "envoy.clusters.dynamic_forward_proxy"
FILTER = "envoy.filters.network.sni_dynamic_forward_proxy"


def resolve_by_request(cluster: Cluster, host: str) -> None:
    cluster.lb_policy = Cluster.CLUSTER_PROVIDED
    cluster.cluster_type.name = CLUSTER
    # Without this option Envoy rejects a cluster without TLS, and one whose TLS does not take the SNI from requests.
    config = ClusterConfig(dns_cache_config=_cache(host), allow_insecure_cluster_options=True)
    cluster.cluster_type.typed_config.CopyFrom(packed(config))


def resolve_server_name(host: str, port: int) -> Filter:
    config = FilterConfig(dns_cache_config=_cache(host), port_value=port)
    return Filter(name=FILTER, typed_config=packed(config))


def _cache(host: str) -> DnsCacheConfig:
    """Return the config of the DNS cache for the names that the wildcard service `host` covers. Envoy requires that all
    configs with the same cache name are equal, so the cluster and the filter both use this one."""
    return DnsCacheConfig(name=host, dns_lookup_family=Cluster.V4_PREFERRED)
