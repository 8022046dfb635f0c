import pytest

from envoy_dumps import cluster, dump, made_by
from weft.envoy.dump_clusters import COLUMNS, ClusterFilter, ClusterName, clusters, parse_name, table

DUMP = dump(
    ClustersConfigDump={
        "static_clusters": [cluster("xds-grpc")],
        "dynamic_active_clusters": [
            cluster(
                "outbound|80|v2|payments.shop.svc.cluster.local", type="EDS", **made_by("destination-rule", "payments")
            ),
            cluster("outbound|80||payments.shop.svc.cluster.local", type="EDS"),
            cluster("outbound|9090||payments.shop.svc.cluster.local", type="STRICT_DNS"),
            cluster("inbound|8080||", type="ORIGINAL_DST"),
            cluster("PassthroughCluster", type="ORIGINAL_DST"),
            {"unknown": "entry"},
        ],
        "dynamic_warming_clusters": [cluster("outbound|1||warming")],
    }
)


def test_a_name_is_taken_apart_or_kept_whole():
    assert parse_name("outbound|80|v1|a.b") == ClusterName("outbound", 80, "v1", "a.b")
    assert parse_name("PassthroughCluster") == ClusterName("", 0, "", "PassthroughCluster")
    assert parse_name("outbound|x||a").port == 0


def test_rows_are_istioctls_in_istioctls_order():
    made = table(clusters(DUMP))
    assert made.columns == COLUMNS
    assert made.rows == (
        ("", "8080", "-", "inbound", "ORIGINAL_DST", ""),
        ("PassthroughCluster", "-", "-", "-", "ORIGINAL_DST", ""),
        ("payments.shop.svc.cluster.local", "80", "-", "outbound", "EDS", ""),
        ("payments.shop.svc.cluster.local", "9090", "-", "outbound", "STRICT_DNS", ""),
        ("payments.shop.svc.cluster.local", "80", "v2", "outbound", "EDS", "payments.shop"),
        ("xds-grpc", "-", "-", "-", "STATIC", ""),
    )


def test_the_whole_name_comes_first_where_several_tables_are_shown():
    made = table(clusters(DUMP, ClusterFilter(subset="v2")), named=True)
    assert made.columns[:2] == ("NAME", "SERVICE FQDN")
    assert made.rows[0][:2] == (
        "cluster/outbound|80|v2|payments.shop.svc.cluster.local",
        "payments.shop.svc.cluster.local",
    )


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (ClusterFilter(), 6),
        (ClusterFilter(fqdn="payments.shop"), 3),
        (ClusterFilter(fqdn="Passthrough"), 1),
        (ClusterFilter(port=80), 2),
        (ClusterFilter(port=8), 0),
        (ClusterFilter(subset="v2"), 1),
        (ClusterFilter(direction="inbound"), 1),
        (ClusterFilter(direction="outbound", port=9090), 1),
    ],
)
def test_several_filters_must_all_match(wanted, count):
    assert len(clusters(DUMP, wanted)) == count


def test_the_why_column_shows_the_reason_for_each_row():
    made = table([{"name": "outbound|80||a"}], why=lambda name, at: f"{name}@{at}")
    assert (made.columns[-1], made.rows[0][-1]) == ("WHY", "outbound|80||a@")
