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
def test_a_port_says_what_it_carries(port, codes):
    assert found(WEB + service(port)) == codes


def test_the_clusters_own_services_are_left_alone():
    assert found(WEB + service("{port: 80}", namespace="kube-system")) == []


def test_services_that_agree_about_a_port_may_both_have_it():
    assert found(WEB + service("{name: grpc, port: 81, targetPort: 8080}")) == []
    assert found(WEB + service("{name: tls, port: 81, targetPort: 8080}")) == ["WFT0308"]


@pytest.mark.parametrize(
    ("name", "met"),
    [
        ("http", "passes on the HTTP/2 of callers' proxies unread: they get 502 unless the application speaks it"),
        ("grpc", "reads nothing of it: no policy sees a path or a method"),
    ],
)
def test_where_services_disagree_it_is_said_what_callers_of_the_second_meet(name, met):
    first = service("{name: tcp, port: 80, targetPort: 8080}", "first")
    second = service(f"{{name: {name}, port: 81, targetPort: 8080}}", "second")
    said = next(problem for problem in of_protocols(facts(WEB + first + second)) if "second" in str(problem.where))
    assert said.what == (
        f"port 8080 of web-v1 is {name} here and tcp to Service first: its proxy treats it as the latter, and {met}"
    )


def test_what_is_not_http_is_refused_where_another_service_says_http():
    (said,) = of_protocols(facts(WEB + service("{name: tcp, port: 81, targetPort: 8080}", "xyz")))
    assert said.what.endswith("its proxy treats it as the latter, and refuses what is not HTTP")
