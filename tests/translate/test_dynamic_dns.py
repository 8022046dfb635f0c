"""The config of a dynamic forward proxy; `tests/e2e/test_entries.py` sends requests through it."""

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.clusters.dynamic_forward_proxy.v3.cluster_pb2 import ClusterConfig
from envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.sni_dynamic_forward_proxy_pb2 import FilterConfig

from weft.translate.dynamic_dns import resolve_by_request, resolve_server_name


def test_the_cluster_and_the_filter_share_one_dns_cache():
    cluster = Cluster(name="outbound|443||*.example.com")
    resolve_by_request(cluster, "*.example.com")
    by_cluster = ClusterConfig.FromString(cluster.cluster_type.typed_config.value).dns_cache_config
    by_filter = FilterConfig.FromString(resolve_server_name("*.example.com", 443).typed_config.value)
    assert by_filter.dns_cache_config == by_cluster
    assert by_filter.port_value == 443
