import pytest
from tests.inspect.test_stage import DENY, shop

from weft.api.parse import parse
from weft.base.problem import Problem, Where
from weft.files.documents import read_documents
from weft.inspect.ask.why import KINDS, NoSuchKind, NoSuchPart, NoSuchResource, every, why
from weft.inspect.reasons import rules
from weft.inspect.stage import NoSuchWorkload, Stage
from weft.mesh.calls import Calls
from weft.model.names import ObjectKey, Origin
from weft.model.on_demand import OnDemand
from weft.model.settings import Settings
from weft.xds.types import CLUSTER
from weft.xds.types import ROUTE as ROUTE_TYPE

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


def parts(mesh, proxy, name, kind=""):
    (found,) = why(mesh, Stage(mesh), proxy, name, kind)
    return {part.path: part.sources for part in found.parts}


def test_each_route_has_the_line_of_its_object(mesh):
    found = parts(mesh, "orders-0.shop", "80")
    routes = {path: sources for path, sources in found.items() if ".routes[" in path and path.endswith("]") and sources}
    assert [sources[0] for sources in routes.values()] == [
        "VirtualService shop/payments (route.yaml:8)",
        "VirtualService shop/payments (route.yaml:9)",
    ]
    assert any("routes[charge" in path for path in routes)


def test_policies_have_their_rule_file_and_line(mesh):
    found = parts(mesh, "payments-0.shop", "virtualInbound")
    policies = {source for path, sources in found.items() if "policies[" in path for source in sources}
    assert policies == {"AuthorizationPolicy shop/only-orders rule[0] (deny.yaml:7)"}


def test_a_cluster_names_its_objects(mesh):
    cluster, endpoints = why(mesh, Stage(mesh), "orders-0.shop", "outbound|80||payments.shop.svc.cluster.local")
    assert (cluster.kind, endpoints.kind) == ("cluster", "endpoints")
    assert cluster.parts[0].sources == ("Service shop/payments (service.yaml:2)",)


def test_endpoints_have_the_sources_of_their_cluster(mesh):
    name = "outbound|80||payments.shop.svc.cluster.local"
    found = {each.kind: each.parts for each in why(mesh, Stage(mesh), "orders-0.shop", name)}
    whole = found["endpoints"][0]
    assert (whole.path, whole.sources) == ("", found["cluster"][0].sources)
    assert "Service shop/payments" in found["endpoints"][0].sources[0]


def test_a_path_selects_the_parts_below_it(mesh):
    for resource in ("80.virtual_hosts[", "80:virtual_hosts["):
        found = parts(mesh, "orders-0.shop", resource)
        assert found and all(path.startswith("virtual_hosts[") for path in found)


def test_a_resource_without_objects_is_a_default(mesh):
    (found,) = why(mesh, Stage(mesh), "orders-0.shop", "BlackHoleCluster")
    assert [(part.path, part.sources, part.rules) for part in found.parts] == [("", (), (rules.BLACK_HOLE,))]


def test_the_kind_distinguishes_resources_of_the_same_name(mesh):
    name = "outbound|80||payments.shop.svc.cluster.local"
    for kind in ("cluster", "clusters", "endpoints", "endpoint"):
        (found,) = why(mesh, Stage(mesh), "orders-0.shop", name, kind)
        assert found.kind == kind.removesuffix("s") or found.kind == "endpoints"
    with pytest.raises(NoSuchKind) as caught:
        why(mesh, Stage(mesh), "orders-0.shop", name, "clutser")
    assert "listener, route, cluster" in caught.value.problem.hint


def test_a_path_may_use_names_or_positions_and_be_deeper_than_the_parts(mesh):
    host = "payments.shop.svc.cluster.local:80"
    named = parts(mesh, "orders-0.shop", f"80.virtual_hosts[{host}].routes[charge].route.timeout")
    assert named == parts(mesh, "orders-0.shop", "80.virtual_hosts[0].routes[0].route.timeout")
    assert list(named) == [f"virtual_hosts[{host}].routes[charge].route.timeout"]
    cluster = "outbound|80||payments.shop.svc.cluster.local"
    assert list(parts(mesh, "orders-0.shop", f"{cluster}.circuit_breakers.thresholds[0]", "cluster")) == [
        "circuit_breakers"
    ]


def test_an_unknown_path_raises_no_such_part(mesh):
    cluster = "outbound|80||payments.shop.svc.cluster.local"
    with pytest.raises(NoSuchPart) as caught:
        why(mesh, Stage(mesh), "orders-0.shop", f"{cluster}.circuit_braekers", "cluster")
    assert "did you mean `circuit_breakers`?" in caught.value.problem.hint
    with pytest.raises(NoSuchPart) as caught:
        why(mesh, Stage(mesh), "orders-0.shop", "80.virtual_hosts[nobody]")
    assert "virtual_hosts[" in caught.value.problem.hint


def test_among_resources_of_the_same_name_only_those_with_the_part_are_returned(mesh):
    name = "outbound|80||payments.shop.svc.cluster.local"
    (found,) = why(mesh, Stage(mesh), "orders-0.shop", f"{name}.circuit_breakers")
    assert found.kind == "cluster" and found.parts
    (found,) = why(mesh, Stage(mesh), "orders-0.shop", f"{name}.endpoints")
    assert found.kind == "endpoints"
    with pytest.raises(NoSuchPart) as caught:
        why(mesh, Stage(mesh), "orders-0.shop", f"{name}.circuit_braekers")
    assert caught.value.problem.hint == "did you mean `circuit_breakers`?"


def test_all_resources_of_a_kind_include_those_that_are_not_sent_separately(mesh):
    assert [found.name for found in every(mesh, Stage(mesh), "payments-0.shop", "secret")] == ["ROOTCA", "default"]
    routes = {found.name for found in every(mesh, Stage(mesh), "payments-0.shop", "route")}
    assert routes == {"80", "inbound|8080||", "InboundPassthroughCluster"}
    stage = Stage(mesh)
    served = stage.resources(stage.group("payments-0.shop"))
    assert {found.name for found in every(mesh, stage, "payments-0.shop", "cluster")} == set(served[CLUSTER])


def test_each_part_of_every_resource_has_an_object_or_a_rule(mesh):
    for kind in KINDS:
        for found in every(mesh, Stage(mesh), "payments-0.shop", kind):
            assert all(part.sources or part.rules for part in found.parts), found.name
            assert (
                len({part.at for part in found.parts}) == len({part.path for part in found.parts}) == len(found.parts)
            )


def test_a_rejected_resource_is_reported_with_the_object_at_fault(mesh):
    problem = Problem(Where("route.yaml", 8, "VirtualService shop/payments"), "Envoy rejects it")
    (found,) = why(mesh, Stage(mesh), "orders-0.shop", "80", "route", {(ROUTE_TYPE, "80"): (problem,)})
    assert found.refused == ("route.yaml:8: VirtualService shop/payments: Envoy rejects it",)
    assert rules.LAST_ACCEPTED in found.parts[0].rules


def test_an_unknown_resource_gets_a_suggestion(mesh):
    with pytest.raises(NoSuchResource, match="has no resource") as caught:
        why(mesh, Stage(mesh), "orders-0.shop", "outbound|80||payment.shop.svc.cluster.local")
    assert "did you mean" in caught.value.problem.hint
    with pytest.raises(NoSuchWorkload):
        why(mesh, Stage(mesh), "nobody.shop", "80")


def test_the_listener_that_holds_calls_has_a_reason():
    mesh = shop(few=0)
    stage = Stage(mesh, calls=Calls())
    (listener,) = why(mesh, stage, stage.find("orders"), "virtualOutbound.filter_chains")
    held = [part for part in listener.parts if "[hold]" in part.path]
    assert [rule.name for part in held for rule in part.rules] == ["held-calls"]
    counted = "1 service could be called from here, more than 0; weft.dev/on-demand: auto."
    assert held[0].rules[0].says == f"{rules.HELD_CALLS.says} {counted}"
    origin = Origin(ObjectKey("ConfigMap", "istio-system", "istio"), "1", "mesh.yaml", 7)
    mesh.apply(origin.key, (Settings(on_demand=OnDemand.ON, origin=origin),))
    (listener,) = why(mesh, stage, stage.find("orders"), "virtualOutbound.filter_chains")
    held = [part for part in listener.parts if "[hold]" in part.path]
    assert "mesh.yaml:7" in held[0].sources[0] and "weft.dev/on-demand: true." in held[0].rules[0].says
    mesh.apply(origin.key, (Settings(on_demand=OnDemand.OFF, origin=origin),))
    (listener,) = why(mesh, stage, stage.find("orders"), "virtualOutbound.filter_chains")
    assert any(
        "stay on demand until they have disconnected" in rule.says for part in listener.parts for rule in part.rules
    )


@pytest.mark.parametrize("word", ["payments", "payments.shop", "payments.shop.svc.cluster.local"])
def test_the_name_of_a_service_gets_one_of_its_resources_as_a_suggestion(mesh, word):
    with pytest.raises(NoSuchResource) as caught:
        why(mesh, Stage(mesh), "orders-0.shop", word)
    assert caught.value.problem.hint.startswith("did you mean `outbound|80|")


def test_a_cluster_that_an_on_demand_proxy_does_not_have_yet_can_be_shown(mesh):
    mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=OnDemand.ON),))
    host = "payments.shop.svc.cluster.local"
    with pytest.raises(NoSuchResource) as caught:
        why(mesh, Stage(mesh, calls=Calls()), "orders-0.shop", f"outbound|80||{host}")
    assert caught.value.problem.hint.endswith(f": weft proxy-config clusters orders-0.shop --host {host} --why")
