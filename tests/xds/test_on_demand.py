import pytest

from weft.xds.on_demand import cluster_host, held_address, is_held_cluster


@pytest.mark.parametrize(
    ("cluster", "address"),
    [
        ("hold|15001|10.0.0.1", "10.0.0.1"),
        ("hold|15001|fd00::1", "fd00::1"),
        ("hold|15001|fd00:0::1", ""),  # not the canonical form of an address: the response must have the requested name
        ("hold|x|10.0.0.1", ""),
        ("hold|15001|web", ""),
        ("hold||10.0.0.1", ""),
        ("outbound|80||10.0.0.1", ""),
        ("", ""),
    ],
)
def test_a_held_cluster_names_an_address(cluster, address):
    assert held_address(cluster) == address


def test_only_held_clusters_are_held():
    assert is_held_cluster("hold|15001|10.0.0.1") and not is_held_cluster("outbound|80||web")


def test_an_outbound_cluster_names_a_host():
    assert cluster_host("outbound|80|v1|web.shop.svc.cluster.local") == "web.shop.svc.cluster.local"
    assert cluster_host("inbound|80||") == cluster_host("PassthroughCluster") == ""
