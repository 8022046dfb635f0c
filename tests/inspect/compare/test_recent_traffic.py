import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.inspect.compare import recent_traffic as recent
from weft.inspect.compare.recent_traffic import Recent, shape_of

HERE = ("10.244.0.2",)
CLUSTER = "outbound|8080||payments.shop.svc.cluster.local"


def line(
    path="/charge",
    method="GET",
    status=200,
    authority="payments:8080",
    cluster=CLUSTER,
    local="240.240.0.7:8080",
    remote="10.244.0.2:40000",
    agent="curl/8",
    name="-",
):
    return (
        f'[2026-11-16T10:00:00.000Z] "{method} {path} HTTP/1.1" {status} - via_upstream - "-" 0 5 1 1 "-" "{agent}" '
        f'"0b5c-1" "{authority}" "10.244.0.3:8080" {cluster} 10.244.0.2:1234 {local} {remote} {name} default '
        'upstream_peer="spiffe://cluster.local/ns/shop/sa/payments" policy="-"'
    )


def kinds(*lines):
    found = Recent()
    found.add("orders.shop", HERE, lines)
    return [(str(each), each.to, each.count) for each in found.kinds()]


def test_requests_of_one_kind_are_counted_together():
    assert kinds(line("/o/1"), line("/o/22"), line("/o/1", status=503), line("/o/1", "POST"), line("/o/3")) == [
        ("orders.shop GET http://payments:8080/o/* (200)", "http://payments:8080/o/1", 3),
        ("orders.shop GET http://payments:8080/o/* (503)", "http://payments:8080/o/1", 1),
        ("orders.shop POST http://payments:8080/o/* (200)", "http://payments:8080/o/1", 1),
    ]


def test_no_query_is_kept():
    ((said, to, _),) = kinds(line("/charge?token=secret"))
    assert "secret" not in said + to and to == "http://payments:8080/charge"


def test_json_lines_are_parsed_like_text_lines():
    said = {
        "method": "GET",
        "path": "/charge?x=1",
        "response_code": 200,
        "authority": "payments:8080",
        "upstream_cluster": CLUSTER,
        "downstream_local_address": "240.240.0.7:8080",
        "downstream_remote_address": "10.244.0.2:40000",
        "requested_server_name": None,
    }
    assert kinds(json.dumps(said)) == kinds(line())


@pytest.mark.parametrize(
    "other",
    [
        line(cluster="inbound|8080||", remote="10.244.0.2:1"),  # an inbound request, although from the pod itself
        line(remote="10.244.0.9:1", cluster="-"),  # an inbound request that was rejected
        line(method="-", path="-"),  # not HTTP
        line(authority="-", local="-"),
        line(authority="bad host"),
        line(local="pipe"),
        "[2026-11-16 10:00:00.000][7][warning][config] something of Envoy's own",
        '{"method": 7, "response_code": "x"}',
        "{",
        "",
    ],
)
def test_lines_that_are_not_the_workloads_own_calls_are_skipped(other):
    assert kinds(other) == []


def test_header_values_of_callers_cannot_forge_a_request():
    forged = 'x" "id" "evil:80" "1.2.3.4:80" outbound|80||evil 1.1.1.1:1 9.9.9.9:80 10.244.0.2:1 - default'
    assert kinds(line(agent=forged)) == kinds(line())


def test_the_port_comes_from_the_local_address_of_the_connection():
    ((_, to, _),) = kinds(line(authority="payments", local="240.240.0.7:80"))
    assert to == "http://payments/charge"
    ((_, to, _),) = kinds(line(authority="[fd00::7]:8080", local="[fd00::7]:8080"))
    assert to == "http://[fd00::7]:8080/charge"


def test_external_clients_are_counted_together_with_http_or_https():
    outside = {
        "authority": "shop.example",
        "local": "10.244.0.9:443",
        "remote": "198.51.100.7:5",
        "name": "shop.example",
    }
    found = Recent()
    found.add_gateway(
        "edge.shop", HERE, [line("/o/1", **outside), line("/o/2", **{**outside, "remote": "192.0.2.9:1"})]
    )
    found.add_gateway("edge.shop", HERE, [line("/o/1", local="127.0.0.1:8080", remote="127.0.0.1:7")])
    found.add_gateway("edge.shop", HERE, [line("/o/1")])  # from a pod of the mesh
    assert [(str(each), each.count) for each in found.kinds()] == [
        ("edge.shop GET https://shop.example/o/* (200)", 2),
        ("edge.shop GET http://payments:8080/o/* (200)", 1),
    ]


def test_kinds_are_limited_and_requests_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(recent, "MOST_KINDS", 2)
    found = Recent()
    found.add("orders.shop", HERE, [line(f"/{name}") for name in "abcab"])
    assert (len(found.kinds()), found.left_out) == (2, 1)


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/", "/"),
        ("/orders/17/items", "/orders/*/items"),
        ("/orders/0b5c6f3e-5a0e-4a58-8f1e-2f0c1c0e9d11", "/orders/*"),
        ("/reset/eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "/reset/*"),
        ("/reset/SECRETpath12", "/reset/*"),
        ("/reset/a1b2-c3d", "/reset/*"),
        ("/orders/o-17", "/orders/o-17"),
        ("/v1beta1/checkout", "/v1beta1/checkout"),
        ("/v1/charge", "/v1/charge"),
        (
            "http://payments.shop.svc.cluster.local:8080/charge/7",
            "http://payments.shop.svc.cluster.local:8080/charge/*",
        ),
        ("", ""),
    ],
)
def test_a_path_is_shown_by_its_shape(path, shape):
    assert shape_of(path) == shape


@given(st.text())
def test_no_line_raises_an_exception(text):
    kinds(text)
    kinds(line(agent=text.replace("\n", "")))
