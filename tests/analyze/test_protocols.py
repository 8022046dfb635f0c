"""What ports carry: the cases of WFT0307 to WFT0309 and WFT0318 have the plain ones."""

import pytest

from analyze.meshes import WEB, facts
from weft.analyze.protocols import of_protocols


def service(ports, name="api", namespace="shop"):
    return (
        f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        f"spec: {{selector: {{app: web}}, ports: [{ports}]}}\n"
    )


def found(text):
    return [problem.code for problem in of_protocols(facts(text))]


@pytest.mark.parametrize(
    ("port", "codes"),
    [
        ("{name: grpc, port: 80}", []),
        ("{port: 80, appProtocol: http}", []),
        ("{port: 3306}", []),  # a server that speaks first is known by its number
        ("{port: 53, protocol: UDP}", ["WFT0319"]),
        ("{port: 80}", ["WFT0307"]),
        ("{name: admin-http, port: 80}", ["WFT0307"]),
        ("{name: http, port: 80, targetPort: 6379}", ["WFT0309"]),
        ("{name: redis, port: 6379}", []),
    ],
)
def test_undeclared_and_unlikely_protocols_of_a_port_are_reported(port, codes):
    assert found(WEB + service(port)) == codes


def test_services_of_the_clusters_own_namespaces_are_not_checked():
    assert found(WEB + service("{port: 80}", namespace="kube-system")) == []


def test_services_that_agree_about_a_port_may_both_have_it():
    assert found(WEB + service("{name: http-api, port: 81, targetPort: 8080}")) == []
    assert found(WEB + service("{name: grpc, port: 81}") + service("{name: http2, port: 81}", "other")) == []
    assert found(WEB + service("{name: tls, port: 81, targetPort: 8080}")) == ["WFT0308"]


def second_says(first, second):
    """What is found about the second of two Services with one target."""
    text = service(f"{{name: {first}, port: 80, targetPort: 9000}}", "first")
    text += service(f"{{name: {second}, port: 81, targetPort: 9000}}", "second")
    (said,) = of_protocols(facts(WEB + text))
    assert "second" in str(said.where)
    what = f"port 9000 of web-v1 is {second} here and {first} in Service first: "
    assert said.what.startswith(what)
    return said.code, said.what.removeprefix(what), said.hint


@pytest.mark.parametrize(
    ("first", "second", "met"),
    [
        (
            "tcp",
            "http",
            "for callers without a proxy the protocol in Service first is assumed, and policies do not see a path",
        ),
        ("http", "tcp", "policies do not see the path or method of calls through this port"),
    ],
)
def test_contradicting_protocols_are_reported_with_the_effect_on_callers(first, second, met):
    code, what, _ = second_says(first, second)
    assert code == "WFT0308" and what.startswith(met)


@pytest.mark.parametrize(
    ("first", "second", "met"),
    [
        ("http", "grpc", "the workload gets HTTP/1.1, which cannot carry gRPC"),
        ("http", "http2", "the workload gets HTTP/1.1"),
        ("grpc", "http", "the workload gets HTTP/2, and must support it"),
    ],
)
def test_contradicting_http_versions_of_a_port_are_reported(first, second, met):
    code, what, hint = second_says(first, second)
    assert (code, what) == ("WFT0321", met)
    assert hint.endswith("`useClientProtocol` in a DestinationRule for first.shop.svc.cluster.local")


def of_several(*names):
    """What is found about the last of several Services with one target, the oldest first."""
    text = "".join(service(f"{{name: {name}, port: 80, targetPort: 9000}}", f"s{at}") for at, name in enumerate(names))
    return [each for each in of_protocols(facts(WEB + text)) if f"s{len(names) - 1}" in str(each.where)]


def test_contradicting_http_versions_are_reported_beside_an_older_tcp_service():
    bytes_too, spoken = of_several("tcp", "http", "grpc")
    assert bytes_too.code == "WFT0308" and "tcp in Service s0" in bytes_too.what
    assert spoken.code == "WFT0321" and "http in Service s1: the workload gets HTTP/1.1" in spoken.what


def test_the_hint_for_use_client_protocol_names_the_oldest_service():
    assert of_several("unsaid", "http", "grpc")[-1].hint.endswith("in a DestinationRule for s0.shop.svc.cluster.local")
    # To a Service of bytes nobody would write such a rule: WFT0222 says that it has no effect.
    assert of_several("tcp", "http", "grpc")[-1].hint == "declare the same protocol"


def test_with_an_undeclared_oldest_service_the_effect_is_only_on_the_others():
    (said,) = of_several("unsaid", "tcp", "http")
    assert said.what.endswith("tcp in Service s1: policies do not see the path or method of calls through Service s1")
