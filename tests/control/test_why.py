import pytest

from control.test_stage import DENY, shop
from weft.api.parse import parse
from weft.control.stage import NoSuchWorkload, Stage
from weft.control.why import NoSuchResource, why
from weft.files.documents import read_documents

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: payments, namespace: shop}
spec: {clusterIP: 10.96.0.7, selector: {app: payments}, ports: [{name: http, port: 80, targetPort: 8080}]}
"""
ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payments, namespace: shop}
spec:
  hosts: [payments]
  http:
  - {name: charge, match: [{uri: {prefix: /charge}}], route: [{destination: {host: payments}}]}
  - route: [{destination: {host: payments}}]
"""


@pytest.fixture
def mesh():
    made = shop()
    for text, file in ((ROUTE, "route.yaml"), (DENY, "deny.yaml"), (SERVICE, "service.yaml")):
        for document in read_documents(text.encode(), file).documents:
            made.apply(document.key, parse(document).values)
    return made


def parts(mesh, proxy, name, below=""):
    (found,) = why(Stage(mesh), proxy, name, below)
    return {part.path: part.sources for part in found.parts}


def test_each_route_names_the_line_of_the_object_that_made_it(mesh):
    found = parts(mesh, "orders-0.shop", "80")
    routes = {path: sources for path, sources in found.items() if ".routes[" in path}
    assert [sources[0] for sources in routes.values()] == [
        "VirtualService shop/payments (route.yaml:8)",
        "VirtualService shop/payments (route.yaml:9)",
    ]
    assert any("routes[charge" in path for path in routes)


def test_policies_are_named_with_their_rule_and_where_they_are_written(mesh):
    found = parts(mesh, "payments-0.shop", "virtualInbound")
    policies = {source for path, sources in found.items() if "policies[" in path for source in sources}
    assert policies == {"AuthorizationPolicy shop/only-orders rule[0] (deny.yaml:7)"}


def test_a_cluster_names_its_objects(mesh):
    cluster, endpoints = why(Stage(mesh), "orders-0.shop", "outbound|80||payments.shop.svc.cluster.local")
    assert (cluster.kind, endpoints.kind) == ("cluster", "endpoints")
    assert cluster.parts[0].sources == ("Service shop/payments (service.yaml:2)",)


def test_only_the_parts_below_a_path_are_told(mesh):
    assert all(path.startswith("virtual_hosts[") for path in parts(mesh, "orders-0.shop", "80", "virtual_hosts["))


def test_what_no_object_made_is_a_default(mesh):
    assert parts(mesh, "orders-0.shop", "BlackHoleCluster") == {"": ()}


def test_what_is_not_there_is_said_with_a_guess(mesh):
    with pytest.raises(NoSuchResource, match="has no resource") as caught:
        why(Stage(mesh), "orders-0.shop", "outbound|80||payment.shop.svc.cluster.local")
    assert "did you mean" in caught.value.problem.hint
    with pytest.raises(NoSuchWorkload):
        why(Stage(mesh), "nobody.shop", "80")
