import json

import pytest

from envoy_dumps import dump
from weft.envoy.binary import EnvoyError
from weft.envoy.dump import read
from weft.envoy.dump_endpoints import COLUMNS, TOLD_COLUMNS, EndpointFilter, assignments, clusters, is_told, table, told


def host(address, port=0, status="HEALTHY", **health):
    socket = {"socket_address": {"address": address, "port_value": port}}
    return {"address": socket, "health_status": {"eds_health_status": status, **health}}


SAID = {
    "cluster_statuses": [
        {
            "name": "outbound|80||b",
            "host_statuses": [host("10.0.0.2", 8080, failed_outlier_check=True), host("10.0.0.10", 8080)],
        },
        {"name": "outbound|80||a", "host_statuses": [host("10.0.0.2", 8080, "UNHEALTHY")]},
        {"name": "xds", "host_statuses": [{"address": {"pipe": {"path": "/run/xds"}}}]},
        {
            "name": "inner",
            "host_statuses": [
                {"address": {"envoy_internal_address": {"server_listener_name": "l", "endpoint_id": "e"}}}
            ],
        },
        {"name": "odd", "host_statuses": [{}]},
        {"name": "empty"},
    ]
}
DUMP = read(json.dumps(SAID).encode())


def test_rows_are_istioctls_in_istioctls_order():
    made = table(clusters(DUMP))
    assert made.columns == COLUMNS
    assert made.rows == (
        ("10.0.0.10:8080", "HEALTHY", "OK", "outbound|80||b"),
        ("10.0.0.2:8080", "UNHEALTHY", "OK", "outbound|80||a"),
        ("10.0.0.2:8080", "HEALTHY", "FAILED", "outbound|80||b"),
        ("envoy://l/e", "UNKNOWN", "OK", "inner"),
        ("unix:///run/xds", "UNKNOWN", "OK", "xds"),
        ("unknown", "UNKNOWN", "OK", "odd"),
    )


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (EndpointFilter(address="10.0.0.2"), ["outbound|80||a", "outbound|80||b"]),
        (EndpointFilter(address="10.0.0.2", status="unhealthy"), ["outbound|80||a"]),
        (EndpointFilter(cluster="OUTBOUND|80||b"), ["outbound|80||b", "outbound|80||b"]),
        (EndpointFilter(port=1), []),
    ],
)
def test_several_filters_must_all_match(wanted, shown):
    found = clusters(DUMP, wanted)
    assert [row[-1] for row in table(found, wanted).rows] == shown
    assert {each["name"] for each in found} == set(shown)


def test_a_dump_of_another_kind_is_an_error_with_the_right_command():
    with pytest.raises(EnvoyError) as refused:
        clusters(dump(ClustersConfigDump={}))
    assert "/clusters?format=json" in refused.value.problem.hint


def test_assigned_endpoints_have_localities():
    def assignment(name, *addresses):
        endpoints = [
            {
                "endpoint": {"address": {"socket_address": {"address": each, "port_value": 80}}},
                "health_status": "HEALTHY",
            }
            for each in addresses
        ]
        groups = [{"locality": {"region": "r", "zone": "z"}, "lb_endpoints": endpoints}]
        return {"endpoint_config": {"cluster_name": name, "endpoints": groups}}

    found = dump(
        EndpointsConfigDump={
            "dynamic_endpoint_configs": [
                assignment("outbound|80||b", "10.0.0.2"),
                assignment("outbound|80||a", "10.0.0.1", "10.0.0.3"),
            ],
            "static_endpoint_configs": [
                {
                    "endpoint_config": {
                        "cluster_name": "xds",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "/x"}}}}]}],
                    }
                }
            ],
        }
    )
    made = told(found)
    assert made.columns == TOLD_COLUMNS
    assert made.rows == (
        ("endpoint/10.0.0.1:80", "HEALTHY", "r/z", "outbound|80||a"),
        ("endpoint/10.0.0.3:80", "HEALTHY", "r/z", "outbound|80||a"),
        ("endpoint/10.0.0.2:80", "HEALTHY", "r/z", "outbound|80||b"),
        ("endpoint//x", "UNKNOWN", "", "xds"),
    )
    wanted = EndpointFilter(address="10.0.0.3")
    assert told(found, wanted).rows == made.rows[1:2]
    assert [each["cluster_name"] for each in assignments(found, wanted)] == ["outbound|80||a"]
    assert len(assignments(found)) == 3
    assert is_told(found) and not is_told(DUMP) and not is_told(dump(ClustersConfigDump={}))


def test_the_reason_for_a_row_is_looked_up_by_its_address():
    shown = table(clusters(read(json.dumps(SAID).encode())), why=lambda name, at: f"{name}@{at}")
    assert shown.columns == (*COLUMNS, "WHY")
    assert all(row[-1] == f"{row[3]}@{row[0]}" for row in shown.rows)
